package taskstats

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// structure builds a struct taskstats of a version and size, with run time at the given offset and every other
// 64-bit field set to a number that would be noticed if it were read by mistake.
func structure(version uint16, size, runOffset int) []byte {
	b := make([]byte, size)
	for off := 16; off+8 <= size; off += 8 {
		binary.NativeEndian.PutUint64(b[off:], 0xbad)
	}
	binary.NativeEndian.PutUint16(b, version)
	binary.NativeEndian.PutUint64(b[16:], 43)
	binary.NativeEndian.PutUint64(b[24:], 1_041_820)
	binary.NativeEndian.PutUint64(b[runOffset:], 3_611_067)
	binary.NativeEndian.PutUint64(b[map[int]int{72: 40, 96: 48, 120: 56}[runOffset]:], 777)
	return b
}

func TestParseStatsLayouts(t *testing.T) {
	tests := []struct {
		name      string
		version   uint16
		size, run int
	}{
		{"version 1", 1, 80, 72},
		{"version 8 (2.6.32)", 8, 328, 72},
		{"version 13 (5.19)", 13, 416, 72},
		{"version 14 (6.3)", 14, 432, 72},
		{"version 14 with maxima in the middle", 14, 496, 96},
		{"version 14 of 6.14", 14, 560, 120},
		{"version 15 of 6.15", 15, 560, 120},
		{"version 16 (6.16)", 16, 560, 72},
		{"version 17", 17, 688, 72},
	}
	want := Stats{RunNsec: 3_611_067, DelayNsec: 1_041_820, DelayCount: 43, IODelayNsec: 777, Status: OK}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseStats(structure(test.version, test.size, test.run))
			if err != nil || got != want {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
		})
	}
}

func TestParseStatsRefusesUnknownLayouts(t *testing.T) {
	tests := []struct {
		name    string
		version uint16
		size    int
	}{
		{"empty", 16, 0},
		{"cut before the run time", 16, 79},
		{"version 0", 0, 432},
		{"version 14 of a size nobody shipped", 14, 440},
		{"version 15 of a size nobody shipped", 15, 448},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := make([]byte, test.size)
			if len(b) >= 2 {
				binary.NativeEndian.PutUint16(b, test.version)
			}
			if got, err := parseStats(b); !errors.Is(err, errLayout) || got.Status == OK {
				t.Errorf("got %+v, %v; want errLayout", got, err)
			}
		})
	}
}

func TestParseStatsOfNothingIsUnavailable(t *testing.T) {
	b := make([]byte, 560)
	b[0] = 16
	got, err := parseStats(b)
	if err != nil || got != (Stats{Status: Unavailable}) {
		t.Errorf("got %+v, %v; want Unavailable", got, err)
	}
}

// reply builds a TASKSTATS_CMD_NEW payload.
func reply(tgid int32, stats []byte) []byte {
	group := appendAttr(nil, unix.TASKSTATS_TYPE_TGID, binary.NativeEndian.AppendUint32(nil, uint32(tgid)))
	group = appendAttr(group, unix.TASKSTATS_TYPE_NULL, nil) // the kernel's padding where 64-bit values must be aligned
	group = appendAttr(group, unix.TASKSTATS_TYPE_STATS, stats)
	return appendAttr([]byte{unix.TASKSTATS_CMD_NEW, 1, 0, 0}, unix.TASKSTATS_TYPE_AGGR_TGID|unix.NLA_F_NESTED, group)
}

func appendAttr(b []byte, kind uint16, payload []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHeader+len(payload)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, payload...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func TestParseReply(t *testing.T) {
	good := reply(4711, structure(16, 560, 72))
	tgid, s, err := parseReply(good)
	if err != nil || tgid != 4711 || s.Status != OK || s.RunNsec != 3_611_067 {
		t.Fatalf("got %d, %+v, %v", tgid, s, err)
	}
	for cut := range len(good) {
		if _, s, err := parseReply(good[:cut]); err == nil {
			t.Fatalf("cut to %d of %d bytes: got %+v, want an error", cut, len(good), s)
		}
	}
	if _, _, err := parseReply(reply(1, make([]byte, 16))); !errors.Is(err, errLayout) {
		t.Errorf("short structure: got %v, want errLayout", err)
	}
}

func TestParseErrno(t *testing.T) {
	code := func(n int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }
	if got, err := parseErrno(code(-3)); err != nil || got != unix.ESRCH {
		t.Errorf("got %v, %v; want ESRCH", got, err)
	}
	for _, bad := range [][]byte{nil, {1, 2, 3}, code(3), code(-5000)} {
		if got, err := parseErrno(bad); err == nil {
			t.Errorf("% x: got %v, want an error", bad, got)
		}
	}
}

func TestStatsOfErrno(t *testing.T) {
	tests := []struct {
		errno    unix.Errno
		status   Status
		sentinel error
	}{
		{unix.ESRCH, Gone, nil},
		{unix.ENOMEM, Unavailable, nil},
		{unix.EPERM, Unavailable, ErrPermission},
		{unix.EOPNOTSUPP, Unavailable, ErrNotSupported},
	}
	for _, test := range tests {
		s, err := statsOfErrno(test.errno)
		if s.Status != test.status || !errors.Is(err, test.sentinel) {
			t.Errorf("%v: got %v, %v; want %v, %v", test.errno, s.Status, err, test.status, test.sentinel)
		}
	}
	if _, err := statsOfErrno(unix.EINVAL); err == nil {
		t.Error("EINVAL: want an error, a malformed request must not pass for an answer")
	}
}

func FuzzParseReply(f *testing.F) {
	f.Add(reply(4711, structure(16, 560, 72)))
	f.Add(reply(-1, structure(14, 560, 120)))
	f.Add(reply(1, nil))
	f.Add([]byte{2, 1, 0, 0, 4, 0, 5, 0})
	f.Add([]byte{2, 1, 0, 0, 0, 0, 5, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, s, err := parseReply(b)
		if err != nil && s.Status == OK {
			t.Errorf("an error and good numbers together: %+v, %v", s, err)
		}
		if s.Status != OK && (s.RunNsec|s.DelayNsec|s.DelayCount) != 0 {
			t.Errorf("numbers beside status %v: %+v", s.Status, s)
		}
	})
}

func FuzzNextMessage(f *testing.F) {
	message := make([]byte, nlHeader)
	putHeaders(append(message, 0, 0, 0, 0), 31, 3, 1, 1)
	f.Add(message)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			m, rest, err := nextMessage(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) {
				t.Fatalf("no progress: %d bytes left of %d", len(rest), len(b))
			}
			if len(m.payload) > len(b)-nlHeader {
				t.Fatalf("payload of %d bytes out of %d", len(m.payload), len(b))
			}
			_, _ = familyOf(m)
			b = rest
		}
	})
}
