package rig

// The table that the patched emulator shares with the host: rig/qemu/README.md and RDTShm
// in the patch's rdt.c. Little endian, words of 64 bits:
//
//	header   8 words                    magic, domains, RMIDs, PMU Hz, tick ns, clock ns, 2 reserved
//	answers  8 domains x 256 RMIDs x 6  what the host wants reported
//	ran      8 domains x 256 RMIDs x 4  who ran, and under which limits

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

const (
	tableMagic   = 0x32304d4853544452 // "RDTSHM02"
	tableDomains = 8
	tableRMIDs   = 256

	headerBytes = 8 * 8
	answerBytes = 6 * 8
	ranBytes    = 4 * 8
	answersAt   = headerBytes
	ranAt       = answersAt + tableDomains*tableRMIDs*answerBytes
	tableBytes  = ranAt + tableDomains*tableRMIDs*ranBytes
)

// Answer is what the emulator reports for an RMID in a domain; zero fields leave it to
// its own model.
type Answer struct {
	RateBytes      uint64 // per second on a CPU
	OccupancyBytes uint64
	Flags          uint64 // AnswerUnavailable, AnswerError
	LocalPercent   uint64 // of the traffic
	CPIMilli       uint64 // cycles per 1000 instructions
	MPKI           uint64 // LLC misses per 1000 instructions
}

// Flags of an Answer.
const (
	AnswerUnavailable = 1
	AnswerError       = 2
)

// Ran is what an RMID did in a domain.
type Ran struct {
	CPUNsec      uint64 // on the domain's CPUs, in the guest's time, since it started
	CLOSID       uint64 // as of the last time it ran, as the two below
	WayMask      uint64
	DelayPercent uint64 // of MBA
}

// Table is the shared file. The emulator has it mapped: what is written here it sees at
// once, and the other way round.
type Table struct {
	file *os.File
	buf  []byte
}

// ErrNoTable: the emulator has not (yet) put its mark into the table, or another version's.
var ErrNoTable = errors.New("the shared table was not set up by this emulator")

// CreateTable makes the file, before the emulator starts.
func CreateTable(path string) (*Table, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(tableBytes); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Table{file: f, buf: make([]byte, tableDomains*tableRMIDs*ranBytes)}, nil
}

// Close closes the file.
func (t *Table) Close() error { return t.file.Close() }

// SetAll sets an RMID's answer in every domain.
func (t *Table) SetAll(rmid int, a Answer) error {
	for d := range tableDomains {
		if err := t.Set(d, rmid, a); err != nil {
			return err
		}
	}
	return nil
}

// Set sets an RMID's answer in one domain.
func (t *Table) Set(domain, rmid int, a Answer) error {
	if domain < 0 || domain >= tableDomains || rmid < 0 || rmid >= tableRMIDs {
		return fmt.Errorf("shared table: no RMID %d in domain %d", rmid, domain)
	}
	data := make([]byte, 0, answerBytes)
	for _, word := range []uint64{a.RateBytes, a.OccupancyBytes, a.Flags, a.LocalPercent, a.CPIMilli, a.MPKI} {
		data = binary.LittleEndian.AppendUint64(data, word)
	}
	_, err := t.file.WriteAt(data, int64(answersAt+(domain*tableRMIDs+rmid)*answerBytes))
	return err
}

// Clock returns the guest's time in nanoseconds up to which Ran is complete.
func (t *Table) Clock() (uint64, error) {
	var header [headerBytes]byte
	if _, err := t.file.ReadAt(header[:], 0); err != nil {
		return 0, err
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(header[8*i:]) }
	if word(0) != tableMagic || word(1) != tableDomains || word(2) != tableRMIDs {
		return 0, ErrNoTable
	}
	return word(5), nil
}

// ReadRan fills dst[domain][rmid].
func (t *Table) ReadRan(dst *[tableDomains][tableRMIDs]Ran) error {
	if _, err := t.file.ReadAt(t.buf, ranAt); err != nil {
		return err
	}
	for i := range tableDomains * tableRMIDs {
		word := func(k int) uint64 { return binary.LittleEndian.Uint64(t.buf[i*ranBytes+8*k:]) }
		dst[i/tableRMIDs][i%tableRMIDs] = Ran{CPUNsec: word(0), CLOSID: word(1), WayMask: word(2), DelayPercent: word(3)}
	}
	return nil
}
