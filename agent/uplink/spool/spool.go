// Package spool keeps messages in a folder until somebody has taken them: the oldest first, bounded in bytes, and
// through a crash of the process that wrote them.
//
// A message is a file, made under another name and renamed, with a checksum before its bytes. Nothing is synced: what a
// machine that loses its power had not yet sent may be lost, and a file that came out of that damaged is dropped and counted.
package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const suffix = ".batch"

// Spool is one folder. It is not safe for concurrent use.
type Spool struct {
	dir   string
	most  int64
	names []string // in order
	sizes map[string]int64
	bytes int64
	lost  uint64
}

var table = crc32.MakeTable(crc32.Castagnoli)

// Open takes up what a folder holds, which is made where it is not there. most bounds it in bytes.
func Open(dir string, most int64) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	entries, err := os.ReadDir(dir) // ordered by name
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	s := &Spool{dir: dir, most: most, sizes: map[string]int64{}}
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil || !info.Mode().IsRegular():
		case strings.HasSuffix(e.Name(), suffix+".new"):
			_ = os.Remove(filepath.Join(dir, e.Name())) // of a process that ended in the midst
		case strings.HasSuffix(e.Name(), suffix):
			s.names, s.sizes[e.Name()] = append(s.names, e.Name()), info.Size()
			s.bytes += info.Size()
		}
	}
	return s, nil
}

// Len is how many messages wait.
func (s *Spool) Len() int { return len(s.names) }

// Bytes is how many bytes these are.
func (s *Spool) Bytes() int64 { return s.bytes }

// Lost returns how many messages were dropped since it was last asked: the folder was full, or they were damaged.
func (s *Spool) Lost() uint64 {
	n := s.lost
	s.lost = 0
	return n
}

// Put keeps a message. Names order the messages; the oldest give way where there is no room.
func (s *Spool) Put(name string, data []byte) error {
	name += suffix
	size := int64(len(data)) + 4
	if size > s.most {
		return fmt.Errorf("spool: a message of %d bytes; the spool takes %d", size, s.most)
	}
	for s.bytes+size > s.most && len(s.names) > 0 {
		if err := s.drop(s.names[0]); err != nil {
			return err
		}
		s.lost++
	}
	path := filepath.Join(s.dir, name)
	framed := append(binary.LittleEndian.AppendUint32(make([]byte, 0, size), crc32.Checksum(data, table)), data...)
	err := os.WriteFile(path+".new", framed, 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		_ = os.Remove(path + ".new") // a full disk: what is there of it helps nobody
		return fmt.Errorf("spool: %w", err)
	}
	at, found := slices.BinarySearch(s.names, name)
	if !found {
		s.names = slices.Insert(s.names, at, name)
	}
	s.bytes += size - s.sizes[name]
	s.sizes[name] = size
	return nil
}

// Oldest returns the message that has waited longest; ok is false where there is none. Damaged ones are dropped.
func (s *Spool) Oldest() (name string, data []byte, ok bool, err error) {
	for len(s.names) > 0 {
		name = s.names[0]
		b, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", nil, false, fmt.Errorf("spool: %w", err)
		}
		if len(b) >= 4 && binary.LittleEndian.Uint32(b) == crc32.Checksum(b[4:], table) {
			return strings.TrimSuffix(name, suffix), b[4:], true, nil
		}
		if err := s.drop(name); err != nil {
			return "", nil, false, err
		}
		s.lost++
	}
	return "", nil, false, nil
}

// Remove forgets a message that was taken.
func (s *Spool) Remove(name string) error { return s.drop(name + suffix) }

func (s *Spool) drop(name string) error {
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("spool: %w", err)
	}
	if at, found := slices.BinarySearch(s.names, name); found {
		s.names = slices.Delete(s.names, at, at+1)
	}
	s.bytes -= s.sizes[name]
	delete(s.sizes, name)
	return nil
}
