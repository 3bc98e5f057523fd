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
const Version = 3

// magic begins every segment.
const magic = "commensal-record\n"

// Suffix of a segment's file name.
const Suffix = ".crec"

// maxFrame bounds one frame: a checkpoint of 10,000 tasks with an hour of one-second
// windows is about the largest that can be.
const maxFrame = 1 << 30

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

// openFrame appends a frame's kind, with room for its head before it, and returns where the
// frame begins. The payload is appended to that; closeFrame then fills the head in.
func openFrame(b []byte, kind byte) ([]byte, int) {
	at := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, kind)
	return b, at
}

func closeFrame(b []byte, at int) {
	payload := b[at+8:] // the kind is part of what is checked
	binary.LittleEndian.PutUint32(b[at:], uint32(len(payload)-1))
	binary.LittleEndian.PutUint32(b[at+4:], crc32.Checksum(payload, table))
}

// readFrame reads the next frame into buf and returns its kind and payload.
func readFrame(r io.Reader, buf []byte) (kind byte, payload, next []byte, err error) {
	var head [8]byte
	n, err := io.ReadFull(r, head[:])
	if n == 0 && errors.Is(err, io.EOF) {
		return 0, nil, buf, io.EOF
	}
	if err != nil {
		return 0, nil, buf, ErrTorn
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > maxFrame {
		return 0, nil, buf, fmt.Errorf("%w: frame of %d bytes", ErrCorrupt, size)
	}
	if buf, err = readN(r, buf, int(size)+1); err != nil {
		return 0, nil, buf, ErrTorn
	}
	if got, want := crc32.Checksum(buf, table), binary.LittleEndian.Uint32(head[4:]); got != want {
		return 0, nil, buf, fmt.Errorf("%w: checksum %08x, expected %08x", ErrCorrupt, got, want)
	}
	return buf[0], buf[1:], buf, nil
}

// readN reads n bytes into buf, growing it as bytes arrive: a length that lies must not
// make us reserve what was never written.
func readN(r io.Reader, buf []byte, n int) ([]byte, error) {
	const step = 1 << 20
	buf = buf[:0]
	for len(buf) < n {
		at, chunk := len(buf), min(step, n-len(buf))
		if cap(buf) < at+chunk {
			buf = append(buf, make([]byte, chunk)...)
		}
		buf = buf[:at+chunk]
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return buf, err
		}
	}
	return buf, nil
}
