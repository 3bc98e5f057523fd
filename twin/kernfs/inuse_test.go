package kernfs_test

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

const gib = 1 << 30

// fullMachine has 8 GiB and 1 GiB of swap, too little for what its tasks come to want.
func fullMachine(t *testing.T) *machine.Machine {
	t.Helper()
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore, c.MemBytes, c.SwapBytes = 1, 4, 1, 8*gib, gib
	m, err := machine.New(c, 3)
	must(t, err)
	return m
}

func crowded() map[string]machine.TaskConfig {
	web, hog := bystander(), bystander()
	web.Memory = []machine.Heat{{Bytes: 3 * gib, EveryNsec: 30e9}, {Bytes: gib, EveryNsec: 60e9, File: true}}
	hog.Memory = []machine.Heat{{Bytes: 5.2 * gib, EveryNsec: 5e9}}
	return map[string]machine.TaskConfig{"/a-web-1": web, "/b-hog": hog}
}

// Through files of either layout memory in use is that of the typed seam, to the page, and adds up to what the
// machine lacks.
func TestInUseOnBothSeams(t *testing.T) {
	crowd := crowded()
	paths := slices.Sorted(maps.Keys(crowd))
	see := func(h node.Host, advance func()) (all []model.Snapshot) {
		for range 20 {
			var s model.Snapshot
			must(t, h.Observe(model.WindowStart|model.WindowEnd, &s))
			all = append(all, s)
			advance()
		}
		return all
	}
	m := fullMachine(t)
	host := twin.NewHost(m, false)
	host.Meter(node.Readings{InUse: true})
	for _, path := range paths {
		_, err := host.Start(model.Task{Path: path}, crowd[path])
		must(t, err)
	}
	want := see(host, func() { m.Advance(1e9) })
	for _, layout := range layouts {
		k, err := kernfs.New(fullMachine(t), kernfs.Options{Layout: layout})
		must(t, err)
		for _, path := range paths {
			started(t, k, path, crowd[path])
		}
		rules, err := match.Compile(crowdRules)
		must(t, err)
		h, err := linux.Open(linux.Options{
			FS: k, Rules: rules, Log: slog.New(slog.DiscardHandler), Delay: k.Taskstats(), Opener: k.Counters(), Clock: k, InUse: true,
		})
		must(t, err)
		defer h.Close() //nolint:errcheck // it only read
		last := model.CountMemoryStall
		if layout == cgroup.LayoutV2 { // groups of v1 have no pressure
			last++
		}
		got := see(h, func() { k.Advance(1e9) })
		for i := range got {
			if d := cmp.Diff(want[i].Node.C[model.CountMemoryTotal:], got[i].Node.C[model.CountMemoryTotal:]); d != "" {
				t.Fatalf("%v, second %d: the machine: %s", layout, i, d)
			}
			for k := range got[i].Tasks {
				if d := cmp.Diff(want[i].Tasks[k].C[model.CountMemory:last], got[i].Tasks[k].C[model.CountMemory:last]); d != "" {
					t.Fatalf("%v, second %d, task %d: %s", layout, i, k, d)
				}
			}
		}
	}
	last := &want[len(want)-1]
	n, taken, refaults := last.Node.C, uint64(0), uint64(0)
	for i := range last.Tasks {
		taken += last.Tasks[i].C[model.CountMemory].Value - last.Tasks[i].C[model.CountMemoryFile].Value
		refaults += last.Tasks[i].C[model.CountRefaults].Value
	}
	if gap := int64(n[model.CountMemoryTotal].Value) - int64(n[model.CountMemoryAvailable].Value) - int64(taken); gap < -4*4096 || gap > 4*4096 {
		t.Errorf("anonymous memory and what is available leave %d bytes", gap)
	}
	if n[model.CountMemorySome].Value == 0 || n[model.CountSwapFree].Value >= gib || refaults == 0 {
		t.Errorf("it should be short of memory: %+v, %d refaults", n, refaults)
	}
}
