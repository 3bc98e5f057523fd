package memcached

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestParseReply(t *testing.T) {
	long := strings.Repeat("x", maxLineBytes+1)
	for _, c := range []struct {
		name    string
		in      string
		command Command
		outcome Outcome
		n       int // 0: more is needed; -1: refused
		key     string
		bytes   int
		text    string
	}{
		{"version", "VERSION 1.6.18\r\nVERS", CommandVersion, Version, 16, "", 0, "1.6.18"},
		{"hit", "VALUE k1 0 5\r\nhello\r\nEND\r\nEND\r\n", CommandGet, Hit, 26, "k1", 5, ""},
		{"hit with CR LF inside", "VALUE k 7 4\r\n\r\n\r\n\r\nEND\r\n", CommandGet, Hit, 24, "k", 4, ""},
		{"empty value", "VALUE k 0 0\r\n\r\nEND\r\n", CommandGet, Hit, 20, "k", 0, ""},
		{"miss", "END\r\n", CommandGet, Miss, 5, "", 0, ""},
		{"stored", "STORED\r\nSTORED\r\n", CommandSet, Stored, 8, "", 0, ""},
		{"not stored", "NOT_STORED\r\n", CommandSet, NotStored, 12, "", 0, ""},
		{"server error", "SERVER_ERROR out of memory storing object\r\n", CommandSet, ServerError, 43, "", 0, "out of memory storing object"},

		{"nothing", "", CommandGet, 0, 0, "", 0, ""},
		{"half a line", "VALUE k 0", CommandGet, 0, 0, "", 0, ""},
		{"CR without LF yet", "END\r", CommandGet, 0, 0, "", 0, ""},
		{"half the data", "VALUE k 0 5\r\nhel", CommandGet, 0, 0, "", 0, ""},
		{"half the end", "VALUE k 0 5\r\nhello\r\nEN", CommandGet, 0, 0, "", 0, ""},

		{"bare LF", "END\n", CommandGet, 0, -1, "", 0, ""},
		{"unknown", "ERROR\r\n", CommandGet, 0, -1, "", 0, ""},
		{"client error", "CLIENT_ERROR bad data chunk\r\n", CommandSet, 0, -1, "", 0, ""},
		{"reply to another command", "STORED\r\n", CommandGet, 0, -1, "", 0, ""},
		{"empty version", "VERSION \r\n", CommandVersion, 0, -1, "", 0, ""},
		{"wrong length", "VALUE k 0 4\r\nhello\r\nEND\r\n", CommandGet, 0, -1, "", 0, ""},
		{"negative length", "VALUE k 0 -1\r\n", CommandGet, 0, -1, "", 0, ""},
		{"huge length", "VALUE k 0 99999999999\r\n", CommandGet, 0, -1, "", 0, ""},
		{"no length", "VALUE k 0\r\n", CommandGet, 0, -1, "", 0, ""},
		{"cas field unasked", "VALUE k 0 1 9\r\n", CommandGet, 0, -1, "", 0, ""},
		{"no key", "VALUE  0 1\r\n", CommandGet, 0, -1, "", 0, ""},
		{"endless line", long, CommandGet, 0, -1, "", 0, ""},
		{"long line", long + "\r\n", CommandGet, 0, -1, "", 0, ""},
	} {
		r, n, err := ParseReply([]byte(c.in), c.command)
		if c.n < 0 {
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("%s: error %v, want ErrProtocol", c.name, err)
			}
			continue
		}
		if err != nil || n != c.n || r.Outcome != c.outcome || string(r.Key) != c.key || r.Bytes != c.bytes || string(r.Text) != c.text {
			t.Errorf("%s: got %+v (key %q text %q) n %d err %v", c.name, r, r.Key, r.Text, n, err)
		}
	}
}

func TestNeedBytes(t *testing.T) {
	whole := "VALUE k 0 100000\r\n" + strings.Repeat("v", 100000) + "\r\nEND\r\n"
	if n := NeedBytes([]byte(whole[:40]), CommandGet); n != len(whole) {
		t.Errorf("need %d, want %d", n, len(whole))
	}
	if n := NeedBytes([]byte("VAL"), CommandGet); n <= maxLineBytes {
		t.Errorf("need %d for a line", n)
	}
}

func TestValidKey(t *testing.T) {
	for key, want := range map[string]bool{
		"a": true, strings.Repeat("k", 250): true, "": false, strings.Repeat("k", 251): false,
		"a b": false, "a\r\nflush_all": false, "ü": true, "a\x7f": false,
	} {
		if ValidKey(key) != want {
			t.Errorf("ValidKey(%q) = %v", key, !want)
		}
	}
}

func TestParseReplyDoesNotAllocate(t *testing.T) {
	in := []byte("VALUE k1 0 5\r\nhello\r\nEND\r\n")
	if n := testing.AllocsPerRun(100, func() {
		if _, n, err := ParseReply(in, CommandGet); err != nil || n != len(in) {
			t.Fatal(n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

// FuzzParseReply checks that the parser never takes more than it was given, that what it
// takes stands alone, and that a reply parses the same however the bytes arrive.
func FuzzParseReply(f *testing.F) {
	for _, s := range []string{
		"VERSION 1.6.18\r\n", "VALUE k 0 5\r\nhello\r\nEND\r\n", "END\r\n", "STORED\r\n", "SERVER_ERROR x\r\n",
		"ERROR\r\n", "VALUE k 0 4\r\nhello\r\nEND\r\n", "VALUE k 0 99999999999\r\n", "\r\n", "\n", "VALUE  \r\n",
	} {
		for c := range uint8(3) {
			f.Add([]byte(s), c)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, command uint8) {
		c := Command(command % 3)
		r, n, err := ParseReply(b, c)
		if n < 0 || n > len(b) || (err != nil && n != 0) {
			t.Fatalf("took %d of %d bytes, error %v", n, len(b), err)
		}
		if err != nil && !errors.Is(err, ErrProtocol) {
			t.Fatalf("unmarked error %v", err)
		}
		if err == nil && n == 0 && len(b) > 0 && NeedBytes(b, c) <= len(b) {
			t.Fatalf("wants more than %d bytes, but NeedBytes says %d", len(b), NeedBytes(b, c))
		}
		if n == 0 {
			return
		}
		if !bytes.HasSuffix(b[:n], crlf) {
			t.Fatalf("reply %q does not end a line", b[:n])
		}
		r2, n2, err2 := ParseReply(b[:n], c)
		if n2 != n || err2 != nil || r2.Outcome != r.Outcome || !bytes.Equal(r2.Key, r.Key) || r2.Bytes != r.Bytes {
			t.Fatalf("alone it parses to %+v, %d, %v", r2, n2, err2)
		}
		for i := range n {
			if _, m, err := ParseReply(b[:i], c); m != 0 || err != nil {
				t.Fatalf("the first %d bytes parse to %d, %v", i, m, err)
			}
			if i > 300 {
				break
			}
		}
	})
}
