package reclaim

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// malformed checks that a parser refuses texts, with the sentinel and in one line.
func malformed(t *testing.T, parse func(data []byte) error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		err := parse([]byte(text))
		if !errors.Is(err, cgroup.ErrMalformed) {
			t.Errorf("%q: %v, want ErrMalformed", text, err)
		} else if len(err.Error()) > 300 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: an error that is no line: %v", text, err)
		}
	}
}

func TestParseStat(t *testing.T) {
	var s Stat
	text := "anon 4096\nfile 8192\nfuture 1 2 3\nsock 5\npgsteal 7\nworkingset_refault_anon 0\nzswap 3\nzswapped 9\n"
	if err := parseStat([]byte(text), true, &s); err != nil {
		t.Fatal(err)
	}
	want := Stat{Anon: Gauge{4096, true}, File: Gauge{8192, true}, Zswap: Gauge{3, true}, Zswapped: Gauge{9, true},
		PgSteal: Counter{7, true}, RefaultAnon: Counter{0, true}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
	// What another reading left is not there any more.
	if err := parseStat([]byte("anon 1\nfile 2\n"), true, &s); err != nil || s.PgSteal.OK || s.Zswap.OK {
		t.Errorf("%+v, %v", s, err)
	}
	malformed(t, func(data []byte) error { return parseStat(data, true, &s) },
		"", "\n", "anon 1\n", "file 1\n", "anon 1\nfile -2\n", "anon x\nfile 2\n", "anon 1\nfile 99999999999999999999\n", "anon\nfile 2\n",
		"anon 1\nfile "+strings.Repeat("9", 1000))
	malformed(t, func(data []byte) error { return parseStat(data, false, &s) }, "", "rss 1\ncache 2\n", "total_rss 1\ntotal_cache\n")
	if err := parseStat([]byte("rss 1\ntotal_rss 4096\ntotal_cache 8192\ntotal_swap 5\n"), false, &s); err != nil ||
		s != (Stat{Anon: Gauge{4096, true}, File: Gauge{8192, true}, Swap: Gauge{5, true}}) {
		t.Errorf("v1: %+v, %v", s, err)
	}
}

func TestCounterSince(t *testing.T) {
	for _, c := range []struct {
		now, before Counter
		want        uint64
		ok          bool
	}{
		{Counter{5, true}, Counter{2, true}, 3, true},
		{Counter{5, true}, Counter{5, true}, 0, true},
		{Counter{1, true}, Counter{2, true}, 0, false}, // it went back
		{Counter{5, true}, Counter{}, 0, false},
		{Counter{}, Counter{2, true}, 0, false},
	} {
		if n, ok := c.now.Since(c.before); n != c.want || ok != c.ok {
			t.Errorf("%+v.Since(%+v) = %d, %v", c.now, c.before, n, ok)
		}
	}
}

func TestParseLimits(t *testing.T) {
	for text, want := range map[string]Limit{"max\n": {Max: true, OK: true}, "0\n": {OK: true}, "4096\n": {Bytes: 4096, OK: true}} {
		if l, err := parseLimit([]byte(text)); err != nil || l != want {
			t.Errorf("parseLimit(%q) = %+v, %v", text, l, err)
		}
	}
	malformed(t, func(data []byte) error { _, err := parseLimit(data); return err }, "", "\n", "Max\n", "-1\n", "1 2\n", "max max\n")
	for _, c := range []struct {
		l    Limit
		used uint64
		want uint64
	}{{Limit{Bytes: 10, OK: true}, 4, 6}, {Limit{Bytes: 10, OK: true}, 14, 0}, {Limit{Max: true, OK: true}, 4, 1<<64 - 1}, {Limit{}, 4, 1<<64 - 1}} {
		if got := c.l.room(c.used); got != c.want {
			t.Errorf("%+v.room(%d) = %d", c.l, c.used, got)
		}
	}
	e, err := parseSwapEvents([]byte("high 1\nmax 2\nfail 3\nlater 4\n"))
	if want := (SwapEvents{High: Counter{1, true}, Max: Counter{2, true}, Fail: Counter{3, true}}); err != nil || e != want {
		t.Errorf("parseSwapEvents = %+v, %v", e, err)
	}
	if e, err := parseSwapEvents([]byte("max 2\nfail 3\n")); err != nil || e.High.OK {
		t.Errorf("without high (before 5.8): %+v, %v", e, err)
	}
	malformed(t, func(data []byte) error { _, err := parseSwapEvents(data); return err }, "", "max 1\n", "max x\nfail 1\n", "max 1\nfail\n")
}

func TestParseSwaps(t *testing.T) {
	const heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	list, err := parseSwaps([]byte(heading + "/dev/zram0                              partition\t262140\t\t30976\t\t-2\n" +
		"/swap\\040file\\134x\\040(deleted)  file 1024 2048 100\n"))
	want := []SwapArea{{"/dev/zram0", "partition", 262140 << 10, 30976 << 10, -2}, {`/swap file\x (deleted)`, "file", 1 << 20, 2 << 20, 100}}
	if err != nil || cmp.Diff(want, list) != "" {
		t.Errorf("%+v, %v", list, err)
	}
	if list[0].Zram() != "zram0" || list[1].Zram() != "" || list[1].FreeBytes() != 0 || list[0].FreeBytes() != (262140-30976)<<10 {
		t.Errorf("%+v", list)
	}
	if none, err := parseSwaps([]byte(heading)); err != nil || len(none) != 0 {
		t.Errorf("no areas: %+v, %v", none, err)
	}
	malformed(t, func(data []byte) error { _, err := parseSwaps(data); return err },
		"", "/dev/zram0 partition 1 2 3\n", heading+"/dev/zram0 partition 1 2\n", heading+"/dev/a b partition 1 2 3\n",
		heading+"/dev/zram0 partition -1 2 3\n", heading+"/dev/zram0 partition 1 x 3\n", heading+"/dev/zram0 partition 99999999999999999 2 3\n")
}

func TestParseZram(t *testing.T) {
	z, err := parseZram([]byte("33787904  8470528  8761344        0  8761345        1        2        3        4\n"))
	if want := (Zram{33787904, 8470528, 8761344, 0, 8761345, 1, 2, 3}); err != nil || z != want {
		t.Errorf("%+v, %v", z, err)
	}
	malformed(t, func(data []byte) error { _, err := parseZram(data); return err }, "", "1 2 3 4 5 6 7\n", "1 2 3 4 5 6 7 x\n", "-1 2 3 4 5 6 7 8\n")
}

func TestFigure(t *testing.T) {
	const text = "Zswapped:   10 kB\nZswap:          7 kB\nMemFree: 1\n"
	for key, want := range map[string]uint64{"Zswap:": 7 << 10, "Zswapped:": 10 << 10} {
		if n, ok, err := figure([]byte(text), key, []byte(" kB"), 1<<10); n != want || !ok || err != nil {
			t.Errorf("%s: %d, %v, %v", key, n, ok, err)
		}
	}
	if n, ok, err := figure([]byte(text), "Zswa", nil, 1); n != 0 || ok || err != nil {
		t.Errorf("a key that is not there: %d, %v, %v", n, ok, err)
	}
	malformed(t, func(data []byte) error { _, _, err := figure(data, "Zswap:", []byte(" kB"), 1); return err },
		"Zswap: 7\n", "Zswap: x kB\n", "Zswap: \n")
}

func TestParseSmaps(t *testing.T) {
	list, err := parseSmaps([]byte("1000-3000 rw-p 00000000 00:00 0 \nSize: 8 kB\nRss:                   4 kB\nVmFlags: rd wr\n" +
		"3000-9000 ---p 00000000 00:00 0 \nRss:                   0 kB\n9000-a000 r--s 00000000 08:01 77 /a b: c\nRss: 4 kB\nTHPeligible:    0\n"))
	want := []mapping{{Range{0x1000, 0x3000}, 4096}, {Range{0x9000, 0xa000}, 4096}}
	if err != nil || cmp.Diff(want, list, cmp.AllowUnexported(mapping{})) != "" {
		t.Errorf("%+v, %v", list, err)
	}
	malformed(t, func(data []byte) error { _, err := parseSmaps(data); return err }, "Rss: 4 kB\n", "1000-3000 rw-p\n", "3000-1000 rw-p\nRss: 1 kB\n",
		"x-1 rw-p\nRss: 1 kB\n", "1000-3000 rw-p\nRss: 4\n", "1000-3000 rw-p\n4000-5000 rw-p\nRss: 1 kB\n",
		"1000-3000 rw-p\nRss: 1 kB\n2000-5000 rw-p\nRss: 1 kB\n")
}

func TestResidentAdd(t *testing.T) {
	const present, swapped, file, own = 1 << 63, 1 << 62, 1 << 61, 1 << 56
	var data []byte
	for _, v := range []uint64{0, swapped | own, present, present | own, present | own | 77, present | file, present | file | own} {
		data = binary.NativeEndian.AppendUint64(data, v)
	}
	var r resident
	r.add(append(data, 1, 2, 3)) // a torn entry
	page := pageSize()
	if want := (resident{ownAnon: 2 * page, ownFile: page, sharedAnon: page, sharedFile: page}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	if !r.dense(Range{0, 10 * page}) || r.dense(Range{0, 11 * page}) {
		t.Error("dense is half and more")
	}
}

// lines numbers figures in a text of lru_gen.
func TestScanLRUGen(t *testing.T) {
	const text = "memcg     1 /\n node     0\n          0       1000          1           2 \n          1        500          3           4 \n" +
		"memcg    77 /a b/c\n node     0\n          7         10          5           6 \n          8          0          0           0 \n" +
		" node     2\n          9         10          7           8 \n"
	type seen struct {
		Memcg uint64
		Path  string
		Node  int
		Gens  []Generation
	}
	var got []seen
	var l LRUNode
	visit := func(l *LRUNode) error {
		got = append(got, seen{l.Memcg, string(l.Path), l.Node, append([]Generation(nil), l.Generations()...)})
		return nil
	}
	if err := l.scan([]byte(text), nil, visit); err != nil {
		t.Fatal(err)
	}
	want := []seen{
		{1, "/", 0, []Generation{{0, 1000, 1, 2}, {1, 500, 3, 4}}},
		{77, "/a b/c", 0, []Generation{{7, 10, 5, 6}, {8, 0, 0, 0}}},
		{77, "/a b/c", 2, []Generation{{9, 10, 7, 8}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	stop := errors.New("stop")
	if err := l.scan([]byte(text), nil, func(*LRUNode) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("visit's error: %v", err)
	}
	if err := l.scan(nil, nil, visit); err != nil {
		t.Errorf("an empty file: %v", err)
	}
	malformed(t, func(data []byte) error { return l.scan(data, nil, func(*LRUNode) error { return nil }) },
		"x\n", " node     0\n", "memcg x /\n", "memcg 1\n", "memcg 1 /\n node 0\n", "memcg 1 /\n node 0\nmemcg 2 /a\n",
		"memcg 1 /\n node x\n", "memcg 1 /\n node 0\n 1 2 3\n", "memcg 1 /\n node 0\n 1 2 3 x\n", "memcg 1 /\n node 0\n 1 2 3 4 5\n",
		"memcg 1 /\n node 0\n 1 2 3 4\n 3 2 3 4\n", "memcg 1 /\n node 1\n 1 2 3 4\n node 0\n 1 2 3 4\n",
		"memcg 1 /\n 1 2 3 4\n", "memcg 1 /\n node 0\n"+strings.Repeat(" 1 2 3 4\n", 1)+" 2 2 3 4\n 3 2 3 4\n 4 2 3 4\n 5 2 3 4\n 6 2 3 4\n 7 2 3 4\n 8 2 3 4\n 9 2 3 4\n")
}

// Of groups that nobody asks for nothing is parsed, and all others are there.
func TestScanWanted(t *testing.T) {
	const text = "memcg 1 /\n node 0\n nonsense\nmemcg 2 /a\n node 0\n 1 5 1 1\n node 1\n 1 5 1 1\nmemcg 3 /b\nmemcg 4 /a/b\n node 0\n 1 5 1 1\nmemcg 5 /c\n"
	var got []string
	var l LRUNode
	if err := l.scan([]byte(text), func(path []byte) bool { return within(path, "/a") }, func(l *LRUNode) error {
		got = append(got, string(l.Path))
		return nil
	}); err != nil || !slices.Equal(got, []string{"/a", "/a", "/a/b"}) {
		t.Errorf("%q, %v", got, err)
	}
}

// A line is printed after the one before, with the age that it has then; a generation that ended while it was read is no age of anything.
func TestAgesOfAReading(t *testing.T) {
	for _, c := range []struct {
		name, gens string
		want       [4]uint64
		torn       bool
	}{
		{"a tick between lines", " 1 5000 1 1\n 2 5000 1 1\n 3 5004 1 1\n 4 0 1 1\n", [4]uint64{5004, 5004, 5004, 0}, false},
		{"a reader that waited", " 1 5000 1 1\n 2 5300 1 1\n 3 5300 1 1\n 4 200 1 1\n", [4]uint64{5300, 5300, 5300, 200}, false},
		{"the oldest ended", " 1 3 1 1\n 2 9000 1 1\n 3 8000 1 1\n 4 4000 1 1\n", [4]uint64{9000, 9000, 8000, 4000}, true},
		{"49.7 days are lost", " 1 5 1 1\n 2 4294967290 1 1\n 3 100 1 1\n 4 100 1 1\n", [4]uint64{4294967290, 4294967290, 100, 100}, true},
	} {
		var l LRUNode
		if err := l.scan([]byte("memcg 1 /a\n node 0\n"+c.gens), nil, func(l *LRUNode) error {
			for i, g := range l.Generations() {
				if g.AgeMsec != c.want[i] || l.torn != c.torn {
					t.Errorf("%s: %+v, torn %t", c.name, l.Generations(), l.torn)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(c.name, err)
		}
	}
}

func TestParseLRUGenBits(t *testing.T) {
	for text, want := range map[string]LRUGenBits{"0x0007": LRUGenAll, "0x0000": 0, "0x0003": LRUGenCore | LRUGenMMWalk} {
		if b, err := parseLRUGenBits(text); err != nil || b != want || b.String() != text {
			t.Errorf("%s: %v, %v", text, b, err)
		}
	}
	malformed(t, func(data []byte) error { _, err := parseLRUGenBits(string(data)); return err }, "", "7", "0x", "0xg", "y", "0x100000000")
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
