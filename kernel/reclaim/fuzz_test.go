package reclaim

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// seeds adds what the captured hosts say, and texts that are wrong in some way.
func seeds(f *testing.F, file string, texts ...string) {
	f.Helper()
	names, err := filepath.Glob("testdata/*/" + file)
	if err != nil || len(names) == 0 {
		f.Fatalf("no fixture %s: %v", file, err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, text := range texts {
		f.Add([]byte(text))
	}
}

func FuzzParseStat(f *testing.F) {
	seeds(f, "sys/fs/cgroup/*/memory.stat", "", "anon 1\nfile 2\n", "anon\n")
	seeds(f, "sys/fs/cgroup/memory/*/memory.stat", "total_rss 1\ntotal_cache 2\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		var a, b Stat
		if err := parseStat(data, true, &a); err == nil && (!a.Anon.OK || !a.File.OK) {
			t.Errorf("accepted without anon or file: %+v", a)
		}
		// The same text gives the same, whatever was in the struct.
		b = a
		b.PgScan = Counter{5, true}
		errA, errB := parseStat(data, true, &a), parseStat(data, true, &b)
		if (errA == nil) != (errB == nil) || errA == nil && a != b {
			t.Errorf("%+v, %v; %+v, %v", a, errA, b, errB)
		}
		if err := parseStat(data, false, &a); err == nil && (!a.Anon.OK || a.PgSteal.OK) {
			t.Errorf("v1: %+v", a)
		}
	})
}

func FuzzParseSwapFiles(f *testing.F) {
	seeds(f, "sys/fs/cgroup/*/memory.swap.*", "max\n", "high 0\nmax 1\nfail 2\n")
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = parseLimit(data)
		_, _ = parseUint(data)
		_, _ = parseSwapEvents(data)
	})
}

func FuzzParseSwaps(f *testing.F) {
	seeds(f, "proc/swaps", "Filename\n/a\\040b file 1 2 3\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseSwaps(data)
		for _, a := range list {
			if err != nil || a.Path == "" || a.FreeBytes() > a.SizeBytes {
				t.Errorf("%+v, %v", list, err)
			}
		}
	})
}

func FuzzParseZram(f *testing.F) {
	seeds(f, "sys/block/zram0/mm_stat", "1 2 3 4 5 6 7 8\n")
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = parseZram(data) })
}

func FuzzFigure(f *testing.F) {
	seeds(f, "proc/meminfo", "Zswap: 7 kB\n")
	seeds(f, "proc/vmstat", "zswpwb 1\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, key := range []string{"Zswap:", "Zswapped:", "zswpwb"} {
			if n, ok, err := figure(data, key, nil, 1); err != nil && (n != 0 || ok) {
				t.Errorf("%d, %v, %v", n, ok, err)
			}
		}
	})
}

func FuzzParseSmaps(f *testing.F) {
	seeds(f, "proc/4711/smaps", "1000-2000 r\nRss: 1 kB\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseSmaps(data)
		for i, m := range list {
			if err != nil || m.End < m.Start || m.rssBytes == 0 || i > 0 && m.Start < list[i-1].End {
				t.Errorf("%+v, %v", list, err)
			}
		}
	})
}

func FuzzParseLRUGenBits(f *testing.F) {
	for _, s := range []string{"0x0007", "0x", "y", "0xffffffff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if b, err := parseLRUGenBits(text); err == nil {
			if again, err := parseLRUGenBits(b.String()); err != nil || again != b {
				t.Errorf("%q: %v, then %v, %v", text, b, again, err)
			}
		}
	})
}

// Whatever the file says, the figures that come of it hold together.
func FuzzScanLRUGen(f *testing.F) {
	seeds(f, "sys/kernel/debug/lru_gen", "memcg 1 /a\n node 0\n 1 2 3 4\n", "memcg 1 /a\n node 0\n 1 5 1 1\n 2 4294967290 1 1\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		var l LRUNode
		var group lruGroup
		_ = l.scan(data, nil, func(l *LRUNode) error {
			gens := append([]Generation(nil), l.Generations()...)
			for i, g := range gens {
				if i > 0 && g.AgeMsec > gens[i-1].AgeMsec {
					t.Errorf("a generation is older than the one before: %+v", gens)
				}
				if g.AnonPages > 1<<40 || g.FilePages > 1<<40 {
					return nil // sums would overflow; no machine has so many
				}
			}
			if len(group.members) < 1000 {
				group.members = append(group.members, lruMember{memcg: l.Memcg, path: string(l.Path), node: l.Node, gens: gens})
			}
			return nil
		})
		durations := []time.Duration{1, time.Second, time.Hour, math.MaxInt64}
		for _, swap := range []bool{false, true} {
			a := group.ages(durations, swap, !swap)
			for i := range durations {
				for _, idle := range []Idle{a.Anon[i], a.File[i]} {
					if idle.AtLeastBytes > idle.AtMostBytes {
						t.Errorf("at least %d, at most %d idle for %v: %+v", idle.AtLeastBytes, idle.AtMostBytes, durations[i], group.members)
					}
				}
				if i > 0 && (a.Anon[i].AtLeastBytes > a.Anon[i-1].AtLeastBytes || a.Anon[i].AtMostBytes > a.Anon[i-1].AtMostBytes) {
					t.Errorf("more is idle for longer: %+v", a)
				}
			}
		}
	})
}
