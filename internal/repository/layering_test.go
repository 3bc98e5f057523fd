package repository

// Layering: DESIGN.md's "Rooms" and "The way data flows" as a test. Imports run down
// the list of rooms; a pure room takes time, chance and everything else that could
// change its mind as arguments, so that equal inputs give equal outputs.
//
// Every .go file outside testdata is read, whatever build tags it has. Test files are
// exempt: a test of a pure package may read its golden files.
//
// Not verified: what a pure room calls through the standard library (fmt reaches os),
// through an interface or a function handed to it, or by ranging over a map.

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/commensal-io/commensal"

// room is a folder with what the packages in it may import of ours.
type room struct {
	dir  string
	uses []string // rooms, its own included where its packages may import each other
	pure bool
}

// rooms lists every room that has Go files. A package belongs to the longest dir that
// holds it; one that belongs to none fails the test, so that a new room states its rule.
var rooms = []room{
	{dir: "cpus", pure: true},
	{dir: "model", pure: true, uses: []string{"cpus"}},
	{dir: "policy", pure: true, uses: []string{"model", "policy", "internal/glob"}},
	{dir: "engine", pure: true, uses: []string{"model", "policy"}},
	{dir: "engine/enginetest", uses: []string{"model", "policy", "engine"}},
	{dir: "record", uses: []string{"model", "policy", "engine", "record"}},
	{dir: "kernel", uses: []string{"cpus", "kernel"}},
	{dir: "kernel/perf/perftest", uses: []string{"cpus", "kernel", "internal/rigtest", "internal/testchild"}},
	{dir: "node", uses: []string{"model", "node", "internal/glob"}},
	{dir: "node/linux", uses: []string{"cpus", "kernel", "model", "node"}},
	{dir: "twin/machine", uses: []string{"model"}},
	{dir: "twin/program", uses: []string{"model", "twin/machine"}},
	{dir: "twin", uses: []string{"model", "node", "twin", "twin/machine"}},
	{dir: "twin/player", uses: []string{"engine", "agent", "twin/machine"}},
	{dir: "twin/kernfs", uses: []string{"model", "kernel", "node", "node/linux", "twin", "twin/machine"}},
	{dir: "twin/fault", uses: []string{"model", "kernel", "node", "node/linux"}},
	{dir: "twin/scenario", uses: []string{"model", "policy", "engine", "node", "slo", "agent", "twin", "twin/machine", "twin/program", "internal/strictyaml"}},
	{dir: "twin/scenario/files", uses: []string{
		"model", "kernel", "node", "node/linux", "agent", "twin", "twin/machine", "twin/kernfs", "twin/fault", "twin/scenario",
	}},
	{dir: "twin/soak", uses: []string{
		"model", "policy", "engine", "record", "kernel", "node", "node/linux", "slo", "agent",
		"twin", "twin/machine", "twin/program", "twin/kernfs", "twin/fault", "twin/scenario", "twin/soak",
	}},
	{dir: "slo", uses: []string{"slo"}},
	{dir: "agent", uses: []string{"model", "policy", "engine", "record", "kernel", "node", "node/linux", "slo", "agent", "fleet/wire", "fleet/wire/codec", "internal/guard", "internal/jsonreply", "internal/strictyaml", "internal/webhook"}},
	{dir: "fleet/wire", pure: true, uses: []string{"model"}},
	{dir: "fleet/wire/codec", uses: []string{"model", "fleet/wire"}},
	{dir: "fleet/spec", pure: true, uses: []string{"model", "fleet/wire"}},
	{dir: "fleet/store", uses: []string{"model", "fleet/wire"}},
	{dir: "fleet/bucket", uses: []string{"fleet/store"}},
	{dir: "fleet/bucket/s3", uses: []string{"fleet/bucket", "internal/guard"}},
	{dir: "fleet/bucket/buckettest", uses: []string{"fleet/bucket"}},
	{dir: "fleet/client", uses: []string{"internal/guard"}},
	{dir: "fleet/hub", uses: []string{"model", "fleet/wire", "fleet/wire/codec", "fleet/spec", "fleet/store", "fleet/bucket", "internal/guard", "internal/jsonreply", "internal/webhook"}},
	{dir: "sql"},
	{dir: "lab", uses: []string{
		"model", "policy", "engine", "record", "kernel", "node", "node/linux", "slo", "agent", "lab",
		"twin", "twin/machine", "twin/player", "twin/program", "twin/kernfs", "twin/scenario", "twin/soak", "scenarios",
		"fleet/wire", "fleet/wire/codec", "fleet/spec", "fleet/store", "fleet/client", "fleet/hub", "internal/chromium",
	}},
	{dir: "cmd", uses: []string{
		"model", "policy", "engine", "record", "kernel", "node", "node/linux", "slo", "agent", "lab", "cmd/cli", "cmd/commensal/top", "fleet",
		"fleet/wire", "fleet/spec", "fleet/store", "fleet/bucket", "fleet/bucket/s3", "fleet/client", "fleet/hub", "twin", "twin/machine", "twin/program", "twin/kernfs", "twin/scenario", "twin/scenario/files", "twin/soak", "scenarios",
	}},
	{dir: "cmd/cli"},
	{dir: "cmd/commensal/top", uses: []string{"cmd/cli", "model", "policy", "engine", "agent", "slo"}},
	{dir: "internal/glob", pure: true},
	{dir: "internal/guard"},
	{dir: "internal/chromium"},
	{dir: "internal/jsonreply"},
	{dir: "internal/strictyaml"},
	{dir: "internal/webhook"},
	{dir: "scenarios"},
	{dir: "internal/repository"},
	{dir: "internal/rigtest"},
	{dir: "internal/testchild"},
	{dir: "internal/labtest"},
	{dir: "rig", uses: []string{"rig", "internal/rigtest", "model", "twin/machine"}}, // its guests have the twin's caches
	{dir: "deploy"},
}

// exceptions are findings that are right as they are, each with its reason. One that no
// longer occurs fails the test.
var exceptions = map[string]string{}

// effects are the packages that a pure room never imports, with what lies below them:
// what reaches the machine, the network or a log, and generators without a seed.
var effects = []string{"os", "net", "log", "syscall", "math/rand", "crypto/rand", "testing", "unsafe", "C"}

// seeded is below math/rand, and pure as long as a source is passed in.
const seeded = "math/rand/v2"

// clocks are what package time has that is not arithmetic.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// generators are what package math/rand/v2 has that does not draw from its global source.
var generators = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf"}

// roomOf returns the room of a package's folder, nil when there is none.
func roomOf(dir string) *room {
	var best *room
	for i := range rooms {
		r := &rooms[i]
		if within(dir, r.dir) && (best == nil || len(r.dir) > len(best.dir)) {
			best = r
		}
	}
	return best
}

// within reports whether a slash-separated name is parent or lies below it.
func within(name, parent string) bool {
	return name == parent || strings.HasPrefix(name, parent+"/")
}

// check returns what is wrong with a file of the package in dir, sorted.
func check(dir string, file *ast.File) []string {
	r := roomOf(dir)
	if r == nil {
		return []string{dir + ": is in no room: add a rule for it"}
	}
	var found []string
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			found = append(found, fmt.Sprintf("%s: import %s: %v", dir, spec.Path.Value, err))
			continue
		}
		if why := r.refuses(imported); why != "" {
			found = append(found, fmt.Sprintf("%s: imports %s: %s", dir, strings.TrimPrefix(imported, module+"/"), why))
		}
		if r.pure {
			found = append(found, impureUses(dir, file, spec, imported)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// refuses says why a room may not import a package, or nothing.
func (r *room) refuses(imported string) string {
	switch {
	case within(imported, module):
		target := roomOf(strings.TrimPrefix(imported, module+"/"))
		if target == nil || !slices.Contains(r.uses, target.dir) {
			return fmt.Sprintf("%s may import of ours only %s", r.dir, list(r.uses))
		}
	case !r.pure || imported == seeded:
	case strings.Contains(strings.Split(imported, "/")[0], "."):
		return r.dir + " is pure: the standard library only"
	case slices.ContainsFunc(effects, func(e string) bool { return within(imported, e) }):
		return r.dir + " is pure"
	}
	return ""
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// impureUses finds uses of the clock and of the global generator, called or handed on.
func impureUses(dir string, file *ast.File, spec *ast.ImportSpec, imported string) []string {
	if imported != "time" && imported != seeded {
		return nil
	}
	name := "rand" // of math/rand/v2
	if imported == "time" {
		name = "time"
	}
	if spec.Name != nil {
		name = spec.Name.Name
	}
	if name == "." {
		return []string{fmt.Sprintf("%s: imports %s into its own scope: its uses cannot be checked", dir, imported)}
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); !ok || x.Name != name {
			return true
		}
		switch {
		case imported == "time" && slices.Contains(clocks, sel.Sel.Name):
			found = append(found, fmt.Sprintf("%s: uses time.%s: time is an argument", dir, sel.Sel.Name))
		case imported == seeded && !slices.Contains(generators, sel.Sel.Name):
			found = append(found, fmt.Sprintf("%s: uses rand.%s: a seeded generator is an argument", dir, sel.Sel.Name))
		}
		return true
	})
	return found
}

func TestLayering(t *testing.T) {
	t.Parallel()
	found := map[string]string{} // finding: the first file that has it
	seen := map[string]bool{}    // rooms with files
	err := eachGoFile("../..", func(dir, name string) error {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if r := roomOf(dir); r != nil {
			seen[r.dir] = true
		}
		for _, f := range check(dir, file) {
			if found[f] == "" {
				found[f] = name
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"model", "policy", "engine", "kernel", "node/linux"} {
		if !seen[must] {
			t.Errorf("no Go files of room %s were found: this test looked in the wrong place", must)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(found)) {
		if exceptions[f] == "" {
			t.Errorf("%s (%s)", f, found[f])
		}
	}
	for f, reason := range exceptions {
		if found[f] == "" {
			t.Errorf("exception %q (%s) no longer occurs: remove it", f, reason)
		}
	}
}

// eachGoFile calls f with the folder below root, slash-separated, and the name of every
// Go file that is no test, leaving out what the go command leaves out, and other modules.
func eachGoFile(root string, f func(dir, name string) error) error {
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another test's temporary file, gone since it was listed
		}
		if err != nil || name == root {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			other, err := filepath.Glob(filepath.Join(name, "go.mod"))
			if err != nil {
				return err
			}
			if base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' || len(other) > 0 {
				return fs.SkipDir
			}
			return nil
		}
		if base[0] == '.' || base[0] == '_' || path.Ext(base) != ".go" || strings.HasSuffix(base, "_test.go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		return f(filepath.ToSlash(dir), name)
	})
}

// The checker finds what it is for, and leaves alone what it should.
func TestCheck(t *testing.T) {
	t.Parallel()
	const ours = module + "/"
	for _, tc := range []struct {
		name, dir, src string
		want           []string
	}{
		{"arithmetic on time", "model", `import "time"; const d = time.Second; func f(t time.Time) time.Time { return t.Add(d) }`, nil},
		{"clock", "model", `import "time"; var t = time.Now()`, []string{"model: uses time.Now: time is an argument"}},
		{"clock under another name", "policy/outlier", `import clock "time"; var d = clock.Since(t)`, []string{"policy/outlier: uses time.Since: time is an argument"}},
		{"clock handed on", "engine", `import "time"; var now = time.Now`, []string{"engine: uses time.Now: time is an argument"}},
		{"sleep and until", "engine", `import "time"; func f() { time.Sleep(1); time.Until(t); time.Sleep(2) }`, []string{"engine: uses time.Sleep: time is an argument", "engine: uses time.Until: time is an argument"}},
		{"clock in its own scope", "engine", `import . "time"; var t = Now()`, []string{"engine: imports time into its own scope: its uses cannot be checked"}},
		{"another thing's Now", "engine", `import "time"; var _ time.Time; var t = c.Now()`, nil},
		{"clock in the shell", "agent", `import "time"; var t = time.Now()`, nil},

		{"seeded generator", "policy/p", `import "math/rand/v2"; func f(r *rand.Rand) int { return r.IntN(3) }; var s = rand.NewPCG(1, 2)`, nil},
		{"global generator", "policy/p", `import "math/rand/v2"; var n = rand.IntN(3)`, []string{"policy/p: uses rand.IntN: a seeded generator is an argument"}},
		{"old generator", "policy/p", `import "math/rand"`, []string{"policy/p: imports math/rand: policy is pure"}},

		{"os", "model", `import "os"`, []string{"model: imports os: model is pure"}},
		{"below os", "engine", `import "os/exec"`, []string{"engine: imports os/exec: engine is pure"}},
		{"net, log and slog", "engine", `import ("net/netip"; "log"; "log/slog")`, []string{"engine: imports log/slog: engine is pure", "engine: imports log: engine is pure", "engine: imports net/netip: engine is pure"}},
		{"a name that only begins alike", "engine", `import "oslo"`, nil},
		{"third party in a pure room", "policy/p", `import "golang.org/x/sys/unix"`, []string{"policy/p: imports golang.org/x/sys/unix: policy is pure: the standard library only"}},
		{"third party elsewhere", "kernel/perf", `import "golang.org/x/sys/unix"`, nil},
		{"os elsewhere", "record", `import "os"`, nil},

		{"model uses ours", "model", `import "` + ours + `policy/outlier"`, []string{"model: imports policy/outlier: model may import of ours only cpus"}},
		{"policy uses model and policy", "policy/hardcap", `import ("` + ours + `model"; "` + ours + `policy/antagonist")`, nil},
		{"policy uses engine", "policy/hardcap", `import "` + ours + `engine"`, []string{"policy/hardcap: imports engine: policy may import of ours only model, policy, internal/glob"}},
		{"engine uses record", "engine", `import "` + ours + `record"`, []string{"engine: imports record: engine may import of ours only model, policy"}},
		{"record uses engine", "record", `import "` + ours + `engine"`, nil},
		{"record uses node", "record", `import "` + ours + `node"`, []string{"record: imports node: record may import of ours only model, policy, engine, record"}},
		{"kernel uses kernel", "kernel/cgroup", `import "` + ours + `kernel/hostfs"`, nil},
		{"kernel uses model", "kernel/cgroup", `import "` + ours + `model"`, []string{"kernel/cgroup: imports model: kernel may import of ours only cpus, kernel"}},
		{"node uses kernel", "node/match", `import "` + ours + `kernel/hostfs"`, []string{"node/match: imports kernel/hostfs: node may import of ours only model, node, internal/glob"}},
		{"node/linux uses kernel", "node/linux", `import ("` + ours + `kernel/hostfs"; "` + ours + `node/journal"; "` + ours + `model")`, nil},
		{"the seam uses its implementation", "node", `import "` + ours + `node/linux"`, []string{"node: imports node/linux: node may import of ours only model, node, internal/glob"}},
		{"slo uses model", "slo/memcached", `import "` + ours + `model"`, []string{"slo/memcached: imports model: slo may import of ours only slo"}},
		{"agent uses node/linux", "agent", `import ("` + ours + `node/linux"; "` + ours + `agent/config"; "` + ours + `slo")`, nil},
		{"agent uses lab", "agent", `import "` + ours + `lab/load"`, []string{"agent: imports lab/load: agent may import of ours only model, policy, engine, record, kernel, node, node/linux, slo, agent, fleet/wire, fleet/wire/codec, internal/guard, internal/jsonreply, internal/strictyaml, internal/webhook"}},
		{"lab uses agent", "lab/demo", `import "` + ours + `agent"`, nil},
		{"lab uses cmd", "lab/demo", `import "` + ours + `cmd/commensal"`, []string{"lab/demo: imports cmd/commensal: lab may import of ours only model, policy, engine, record, kernel, node, node/linux, slo, agent, lab, twin, twin/machine, twin/player, twin/program, twin/kernfs, twin/scenario, twin/soak, scenarios, fleet/wire, fleet/wire/codec, fleet/spec, fleet/store, fleet/client, fleet/hub, internal/chromium"}},
		{"cmd uses lab", "cmd/commensal-lab", `import "` + ours + `lab/demo"`, nil},
		{"no room", "utils", `import "fmt"`, []string{"utils: is in no room: add a rule for it"}},
		{"a room that only begins alike", "modelling", ``, []string{"modelling: is in no room: add a rule for it"}},
		{"import of no room", "agent", `import "` + ours + `utils"`, []string{"agent: imports utils: agent may import of ours only model, policy, engine, record, kernel, node, node/linux, slo, agent, fleet/wire, fleet/wire/codec, internal/guard, internal/jsonreply, internal/strictyaml, internal/webhook"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			file, err := parser.ParseFile(token.NewFileSet(), "", "package p; "+tc.src, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, check(tc.dir, file)); diff != "" {
				t.Errorf("check (-want +got):\n%s", diff)
			}
		})
	}
}
