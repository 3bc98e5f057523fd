package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// namers are the rooms that know a knob or a policy by its name, and why. Everybody else goes by
// the rows of model.Knobs and of the engine's list of policies.
var namers = map[string]string{
	"policy":              "each policy is for a knob",
	"engine":              "the list of policies",
	"engine/enginetest":   "what a machine's knobs say before anybody writes them",
	"node/linux":          "the drivers of knobs",
	"twin":                "the wires of the simulated machine",
	"twin/scenario/files": "the same, of its files",
	"twin/soak":           "what a witness of each kernel file looks for",
	"lab/partition":       "the experiment on one policy",
	"lab/headroom":        "the same: it shows that policy tasks with quotas",
}

// makers are the rooms that make an engine, or a core of an agent, themselves, and why. Everybody
// else has both from agent.Assemble, so that what is judged is what runs.
var makers = map[string]string{
	"agent":             "agent.Assemble",
	"engine":            "New and Resume themselves",
	"engine/enginetest": "the engine over knobs in memory, for the tests of policies",
	"record":            "a replay goes on from a checkpoint, and has no host",
	"lab/firstlight":    "asks a record what other parameters would have said, and has no host",
}

// TestNobodyElseAsksForAName looks for comparisons, switch cases and indices with a kind of knob
// or a name of a policy.
func TestNobodyElseAsksForAName(t *testing.T) {
	names := modelNames(t)
	isName := func(e ast.Expr) bool {
		pkg, name := qualified(e)
		return (pkg == "model" || pkg == "") && slices.Contains(names, name)
	}
	hold(t, namers, "asks for a knob or a policy by its name: a row of model.Knobs or of the engine's policies should say it", func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			return (n.Op == token.EQL || n.Op == token.NEQ) && (isName(n.X) || isName(n.Y))
		case *ast.CaseClause:
			return slices.ContainsFunc(n.List, isName)
		case *ast.IndexExpr:
			return isName(n.Index)
		}
		return false
	})
}

// TestOneWayToACore looks for what makes an engine or a core. Inside of their packages, where they
// have no package before their names, it finds what makes them there.
func TestOneWayToACore(t *testing.T) {
	hold(t, makers, "makes an engine or a core itself: agent.Assemble is the way to one", func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			pkg, name := qualified(n.Fun)
			return pkg == "engine" && (name == "New" || name == "Resume")
		case *ast.CompositeLit:
			pkg, name := qualified(n.Type)
			return (pkg == "agent" || pkg == "") && name == "Core" || (pkg == "engine" || pkg == "") && name == "Engine"
		}
		return false
	})
}

// hold fails the test where a file outside of the rooms has what finds looks for, and for a room
// that has none: its exception is no longer needed.
func hold(t *testing.T, rooms map[string]string, wrong string, finds func(ast.Node) bool) {
	t.Helper()
	used := map[string]bool{}
	err := eachGoFile("../..", func(dir, name string) error {
		room := dir
		if within(dir, "policy") {
			room = "policy"
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if n == nil || !finds(n) {
				return true
			}
			if used[room] = true; rooms[room] == "" {
				t.Errorf("%s %s", fset.Position(n.Pos()), wrong)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for room, why := range rooms {
		if !used[room] {
			t.Errorf("%s (%s) needs no exception: take it out of the list", room, why)
		}
	}
}

// modelNames returns the constants of package model that are kinds of knob or names of policies,
// as its source has them.
func modelNames(t *testing.T) []string {
	t.Helper()
	var names []string
	err := eachGoFile("../../model", func(_, name string) error {
		tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range tree.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				names = append(names, namesIn(g)...)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CPUBandwidth", "MemoryBandwidth", "PolicyHardcap", "PolicyCache"} {
		if !slices.Contains(names, want) {
			t.Fatalf("model has no constant %s any more, or the test reads its source no more: %v", want, names)
		}
	}
	return names
}

// namesIn returns those names of a block of constants that are kinds of knob or names of policies.
func namesIn(g *ast.GenDecl) (names []string) {
	kind := false // the constants here are of type KnobKind: said once, and true until another type is
	for _, s := range g.Specs {
		v := s.(*ast.ValueSpec)
		if v.Type != nil || v.Values != nil {
			_, name := qualified(v.Type)
			kind = name == "KnobKind"
		}
		for _, id := range v.Names {
			if kind || strings.HasPrefix(id.Name, "Policy") {
				names = append(names, id.Name)
			}
		}
	}
	return names
}

// qualified splits a name into its package, "" without one, and the name; both are "" for anything else.
func qualified(e ast.Expr) (pkg, name string) {
	switch e := e.(type) {
	case *ast.Ident:
		return "", e.Name
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			return x.Name, e.Sel.Name
		}
	}
	return "", ""
}
