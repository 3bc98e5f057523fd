// Package record keeps what the agent read and decided, append-only, so that it can be
// replayed and explained. docs/RECORD.md is the format's schema.
//
// A record is a folder of segments. Each segment stands alone: it begins with a header
// (versions, parameters) and a checkpoint (the engine's whole state), and goes on with
// one frame a tick (raw samples and every other input) and one frame for each tick that
// led to something. Samples are stored, rates are derived again.
//
// Samples are binary, as differences to the tick before: a hundred and fifty tasks take
// about 2 KB a tick. Everything rare is JSON, for people and for other programs.
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Version of the format that is written, and the newest that is read.
const Version = 6

// magic begins every segment.
const magic = "commensal-record\n"

// Suffix of a segment's file name.
const Suffix = ".crec"

// maxFrame bounds one frame, of what is written and of what is read: a checkpoint of fourteen
// thousand tasks with the usual 120 windows, or of five hundred with an hour of one-second
// windows. Whoever decodes its JSON takes some ten times as much memory.
const maxFrame = 64 << 20

// The kinds of frame.
const (
	frameHeader     = 1
	frameCheckpoint = 2
	frameTick       = 3
	frameOutput     = 4
)

// Sentinels.
var (
	// ErrCorrupt: a frame does not verify, or says what cannot be.
	ErrCorrupt = errors.New("record is corrupt")
	// ErrNewer: a newer version wrote the record.
	ErrNewer = errors.New("record was written by a newer version")
	// ErrTorn: the segment ends inside a frame, as after a crash. Everything before it
	// is good.
	ErrTorn = errors.New("record ends inside a frame")
)

// table is the checksum's; Castagnoli has instructions of its own on servers.
var table = crc32.MakeTable(crc32.Castagnoli)

// A frame's head is the length of its payload, the checksum of kind and payload and, since
// version 4, the checksum of the length: without it a length that was damaged looks like a
// segment that a crash cut off. The header's frame has none in any version, so that readers of
// all versions can tell which one it is.
const (
	headBytes     = 8
	longHeadBytes = 12
)

func headOf(long bool) int {
	if long {
		return longHeadBytes
	}
	return headBytes
}

// openFrame appends a frame's kind, with room for its head before it, and returns where the
// frame begins. The payload is appended to that; closeFrame then fills the head in.
func openFrame(b []byte, kind byte) ([]byte, int) {
	at := len(b)
	b = append(b, make([]byte, longHeadBytes)[:headOf(kind != frameHeader)]...)
	return append(b, kind), at
}

func closeFrame(b []byte, at int, kind byte) {
	long := kind != frameHeader
	payload := b[at+headOf(long):] // the kind is part of what is checked
	binary.LittleEndian.PutUint32(b[at:], uint32(len(payload)-1))
	binary.LittleEndian.PutUint32(b[at+4:], crc32.Checksum(payload, table))
	if long {
		binary.LittleEndian.PutUint32(b[at+headBytes:], crc32.Checksum(b[at:at+4], table))
	}
}

// appendFrame appends a whole frame.
func appendFrame(b []byte, kind byte, payload []byte) []byte {
	b, at := openFrame(b, kind)
	b = append(b, payload...)
	closeFrame(b, at, kind)
	return b
}

// readFrame reads the next frame into buf and returns its kind and payload; long: its head has
// the checksum of the length.
func readFrame(r io.Reader, buf []byte, long bool) (kind byte, payload, next []byte, err error) {
	var room [longHeadBytes]byte
	head := room[:headOf(long)]
	n, err := io.ReadFull(r, head)
	if n == 0 && errors.Is(err, io.EOF) {
		return 0, nil, buf, io.EOF
	}
	if err != nil {
		return 0, nil, buf, ErrTorn
	}
	size := binary.LittleEndian.Uint32(head)
	if long && crc32.Checksum(head[:4], table) != binary.LittleEndian.Uint32(head[headBytes:]) {
		return 0, nil, buf, fmt.Errorf("%w: a frame's length does not verify", ErrCorrupt)
	}
	if size > maxFrame {
		return 0, nil, buf, fmt.Errorf("%w: a frame of %d bytes; at most %d are read", ErrCorrupt, size, maxFrame)
	}
	if buf, err = readN(r, buf, int(size)+1); err != nil {
		if !long && holdsFrame(buf) {
			return 0, nil, buf, fmt.Errorf("%w: a frame of %d bytes, more than there are, and whole frames in them", ErrCorrupt, size)
		}
		return 0, nil, buf, ErrTorn
	}
	if got, want := crc32.Checksum(buf, table), binary.LittleEndian.Uint32(head[4:]); got != want {
		return 0, nil, buf, fmt.Errorf("%w: checksum %08x, expected %08x", ErrCorrupt, got, want)
	}
	return buf[0], buf[1:], buf, nil
}

// holdsFrame reports whether a whole frame lies in b: a length that was damaged, of which there
// is no checksum, swallowed it. What a crash cut off holds none.
func holdsFrame(b []byte) bool {
	const most = 4 * maxFrame // bytes that are summed up: b may be made so that each place looks like a frame
	summed := 0
	for at := 0; at+headBytes < len(b) && summed < most; at++ {
		size := int64(binary.LittleEndian.Uint32(b[at:]))
		for _, long := range []bool{false, true} {
			begin := at + headOf(long)
			end := int64(begin) + 1 + size
			if end > int64(len(b)) || b[begin] < frameHeader || b[begin] > frameOutput {
				continue
			}
			summed += int(size)
			if crc32.Checksum(b[begin:end], table) == binary.LittleEndian.Uint32(b[at+4:]) {
				return true
			}
		}
	}
	return false
}

// readN reads n bytes into buf, growing it as bytes arrive: a length that lies must not
// make us reserve what was never written. After an error buf is what arrived.
func readN(r io.Reader, buf []byte, n int) ([]byte, error) {
	const step = 1 << 20
	buf = buf[:0]
	for len(buf) < n {
		at, chunk := len(buf), min(step, n-len(buf))
		if cap(buf) < at+chunk {
			buf = append(buf, make([]byte, chunk)...)
		}
		buf = buf[:at+chunk]
		if got, err := io.ReadFull(r, buf[at:]); err != nil {
			return buf[:at+got], err
		}
	}
	return buf, nil
}
