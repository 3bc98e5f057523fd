package rig

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func makeTable(t *testing.T) (*Table, *os.File) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "table")
	table, err := CreateTable(name)
	if err != nil {
		t.Fatal(err)
	}
	// The other side of it, as the emulator has it.
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); table.Close() })
	return table, f
}

// put writes words of 64 bits at an offset in bytes.
func put(t *testing.T, f *os.File, at int64, words ...uint64) {
	t.Helper()
	var data []byte
	for _, w := range words {
		data = binary.LittleEndian.AppendUint64(data, w)
	}
	if _, err := f.WriteAt(data, at); err != nil {
		t.Fatal(err)
	}
}

func words(t *testing.T, f *os.File, at int64, n int) []uint64 {
	t.Helper()
	data := make([]byte, 8*n)
	if _, err := f.ReadAt(data, at); err != nil {
		t.Fatal(err)
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = binary.LittleEndian.Uint64(data[8*i:])
	}
	return list
}

// The offsets are those of rig/qemu/README.md, counted by hand: 8 words, then 8 domains
// of 256 RMIDs of 6 words, then 8 of 256 of 4.
const (
	wantAnswers = 64
	wantRan     = 64 + 98304
	wantSize    = 64 + 98304 + 65536
)

func TestTableLayout(t *testing.T) {
	table, f := makeTable(t)
	if info, err := f.Stat(); err != nil || info.Size() != wantSize {
		t.Fatalf("%v bytes, %v; want %d", info.Size(), err, wantSize)
	}
	for _, c := range []struct {
		domain, rmid int
		at           int64
	}{
		{0, 0, wantAnswers},
		{0, 1, wantAnswers + 48},
		{0, 255, wantAnswers + 255*48},
		{1, 0, wantAnswers + 256*48},
		{7, 255, wantRan - 48},
	} {
		a := Answer{RateBytes: 1, OccupancyBytes: 2, Flags: AnswerError, LocalPercent: 40, CPIMilli: 1<<63 + 5, MPKI: 6}
		if err := table.Set(c.domain, c.rmid, a); err != nil {
			t.Fatal(err)
		}
		got := words(t, f, c.at, 6)
		for i, want := range []uint64{1, 2, 2, 40, 1<<63 + 5, 6} {
			if got[i] != want {
				t.Errorf("domain %d, RMID %d: word %d is %d, want %d", c.domain, c.rmid, i, got[i], want)
			}
		}
		put(t, f, c.at, 0, 0, 0, 0, 0, 0)
	}
	// Nothing else was touched.
	for i, w := range words(t, f, 0, wantSize/8) {
		if w != 0 {
			t.Fatalf("word %d is %d", i, w)
		}
	}
	if err := table.SetAll(3, Answer{MPKI: 9}); err != nil {
		t.Fatal(err)
	}
	for d := range 8 {
		if got := words(t, f, int64(wantAnswers+(d*256+3)*48), 6); got[5] != 9 {
			t.Errorf("domain %d: %v", d, got)
		}
	}
}

func TestTableRefusesWhatItHasNot(t *testing.T) {
	table, f := makeTable(t)
	for _, c := range [][2]int{{-1, 0}, {8, 0}, {0, -1}, {0, 256}} {
		if err := table.Set(c[0], c[1], Answer{MPKI: 1}); err == nil {
			t.Errorf("domain %d, RMID %d: no error", c[0], c[1])
		}
	}
	if err := table.SetAll(256, Answer{MPKI: 1}); err == nil {
		t.Error("RMID 256 everywhere: no error")
	}
	for i, w := range words(t, f, 0, wantSize/8) {
		if w != 0 {
			t.Fatalf("word %d is %d", i, w)
		}
	}
}

func TestTableClock(t *testing.T) {
	table, f := makeTable(t)
	const magic = 0x32304d4853544452
	for _, c := range []struct {
		name   string
		header []uint64
		want   error
	}{
		{"empty", []uint64{0, 0, 0}, ErrNoTable},
		{"another version", []uint64{0x31304d4853544452, 8, 256}, ErrNoTable},
		{"other domains", []uint64{magic, 4, 256}, ErrNoTable},
		{"other RMIDs", []uint64{magic, 8, 64}, ErrNoTable},
		{"set up", []uint64{magic, 8, 256}, nil},
	} {
		put(t, f, 0, append(c.header, 1e9, 1e6, 123456789)...)
		clock, err := table.Clock()
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v", c.name, err)
		}
		if want := map[bool]uint64{true: 123456789}[c.want == nil]; clock != want {
			t.Errorf("%s: clock %d, want %d", c.name, clock, want)
		}
	}
	magicText := make([]byte, 8)
	if _, err := f.ReadAt(magicText, 0); err != nil || string(magicText) != "RDTSHM02" {
		t.Errorf("the mark is %q (%v)", magicText, err)
	}
	if err := f.Truncate(32); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Clock(); err == nil || errors.Is(err, ErrNoTable) {
		t.Errorf("a table cut short: %v", err)
	}
}

func TestTableReadRan(t *testing.T) {
	table, f := makeTable(t)
	put(t, f, wantRan, 1, 2, 3, 4)
	put(t, f, wantRan+32, 5, 6, 7, 8)
	put(t, f, wantRan+256*32, 9, 10, 11, 12)
	put(t, f, wantSize-32, 1<<63, 14, 15, 16)
	var got [tableDomains][tableRMIDs]Ran
	if err := table.ReadRan(&got); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		domain, rmid int
		want         Ran
	}{
		{0, 0, Ran{1, 2, 3, 4}}, {0, 1, Ran{5, 6, 7, 8}}, {1, 0, Ran{9, 10, 11, 12}}, {7, 255, Ran{1 << 63, 14, 15, 16}}, {3, 3, Ran{}},
	} {
		if got[c.domain][c.rmid] != c.want {
			t.Errorf("domain %d, RMID %d: %+v, want %+v", c.domain, c.rmid, got[c.domain][c.rmid], c.want)
		}
	}
	// The rule reads it 50 times a second for minutes.
	if n := testing.AllocsPerRun(10, func() {
		if err := table.ReadRan(&got); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a reading", n)
	}
	if err := f.Truncate(wantSize - 1); err != nil {
		t.Fatal(err)
	}
	if err := table.ReadRan(&got); err == nil {
		t.Error("a table cut short: no error")
	}
}

func TestCreateTable(t *testing.T) {
	name := filepath.Join(t.TempDir(), "table")
	writeFile(t, name, "of an earlier boot")
	table, err := CreateTable(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Clock(); !errors.Is(err, ErrNoTable) {
		t.Errorf("got %v", err)
	}
	if err := table.Close(); err != nil {
		t.Error(err)
	}
	if _, err := CreateTable(filepath.Join(name, "below")); err == nil {
		t.Error("a table below a file: no error")
	}
}

// What is answered for the tests' sake must be within the emulated geometry, and apart.
func TestAnswers(t *testing.T) {
	const rmids = 64 // of geometry
	seen := map[int]bool{0: true}
	for rmid := range fixedAnswers {
		if rmid <= 0 || rmid >= rmids || seen[rmid] {
			t.Errorf("fixed answer for RMID %d", rmid)
		}
		seen[rmid] = true
	}
	for _, tenant := range tenants {
		if tenant.RMID <= 0 || tenant.RMID >= rmids || seen[tenant.RMID] {
			t.Errorf("tenant with RMID %d", tenant.RMID)
		}
		seen[tenant.RMID] = true
	}
}
