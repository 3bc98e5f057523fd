package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// rooms that know a knob or a policy by its name, and why. Everybody else goes by the rows of
// model.Knobs and of the engine's list of policies.
var namers = map[string]string{
	"model":               "the list of knobs",
	"policy":              "each policy is for a knob",
	"engine":              "the list of policies",
	"node/linux":          "the drivers of knobs",
	"twin":                "the wires of the simulated machine",
	"twin/scenario/files": "the same, of its files",
	"twin/soak":           "what a witness of each kernel file looks for",
	"lab/partition":       "the experiment on one policy",
}

// TestNobodyElseAsksForAName looks for comparisons and switch cases with a kind of knob or a
// name of a policy.
func TestNobodyElseAsksForAName(t *testing.T) {
	names := []string{"CPUBandwidth", "CPUPlace", "MemoryReclaim", "CPUWeight", "PolicyHardcap", "PolicyCPUSet", "PolicyCPUPool", "PolicyBurst", "PolicyDemote"}
	isName := func(e ast.Expr) bool {
		sel, ok := e.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		x, ok := sel.X.(*ast.Ident)
		return ok && x.Name == "model" && slices.Contains(names, sel.Sel.Name)
	}
	asks := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			return (n.Op == token.EQL || n.Op == token.NEQ) && (isName(n.X) || isName(n.Y))
		case *ast.CaseClause:
			return slices.ContainsFunc(n.List, isName)
		}
		return false
	}
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
			if n == nil || !asks(n) {
				return true
			}
			used[room] = true
			if namers[room] == "" {
				t.Errorf("%s asks for a knob or a policy by its name: a row of model.Knobs or of the engine's policies should say it", fset.Position(n.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !used["node/linux"] {
		t.Error("the drivers ask for no name: the test finds nothing")
	}
}
