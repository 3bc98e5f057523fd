package spool

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func open(t *testing.T, dir string, most int64) *Spool {
	t.Helper()
	s, err := Open(dir, most)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *Spool, name, data string) {
	t.Helper()
	if err := s.Put(name, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

func oldest(t *testing.T, s *Spool) string {
	t.Helper()
	name, data, ok, err := s.Oldest()
	if err != nil || !ok {
		return fmt.Sprint(ok, err)
	}
	return name + " " + string(data)
}

// Messages come out in the order of their names, also after the process that put them in is gone.
func TestMessagesOutliveTheProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := open(t, dir, 1000)
	put(t, s, "2", "two")
	put(t, s, "1", "one")
	if err := os.WriteFile(filepath.Join(dir, "0.batch.new"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, 1000)
	for _, want := range []string{"1 one", "2 two", "false <nil>"} {
		if got := oldest(t, s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if name, _, ok, _ := s.Oldest(); ok {
			if err := s.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 || s.Bytes() != 0 {
		t.Errorf("%v %v: %d bytes", list, err, s.Bytes())
	}
}

// A full spool drops the oldest and says how many; it never holds more than it may.
func TestAFullSpoolDropsTheOldest(t *testing.T) {
	s := open(t, t.TempDir(), 100)
	for i := range 30 {
		put(t, s, fmt.Sprintf("%03d", i), "0123456789012345")
		if s.Bytes() > 100 {
			t.Fatalf("%d bytes", s.Bytes())
		}
	}
	if got := oldest(t, s); got != "025 0123456789012345" || s.Len() != 5 || s.Lost() != 25 || s.Lost() != 0 {
		t.Errorf("%q, %d", got, s.Len())
	}
	if err := s.Put("x", bytes.Repeat([]byte("x"), 100)); err == nil {
		t.Error("a message larger than the spool was taken")
	}
}

// Files that a power cut damaged, or somebody removed, are passed over and counted.
func TestDamagedMessagesAreDropped(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1000)
	for i := range 5 {
		put(t, s, fmt.Sprint(i), "hello")
	}
	path := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)+suffix) }
	if err := os.WriteFile(path(0), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path(1), []byte("\x00\x00\x00\x00hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path(2)); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, 1000)
	if got := oldest(t, s); got != "3 hello" || s.Lost() != 2 {
		t.Errorf("%q", got)
	}
	if err := os.Remove(path(3)); err != nil { // while it is open
		t.Fatal(err)
	}
	if got := oldest(t, s); got != "4 hello" || s.Lost() != 1 {
		t.Errorf("%q", got)
	}
}
