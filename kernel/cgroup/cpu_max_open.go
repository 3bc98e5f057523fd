package cgroup

// The files of a bandwidth limit (cpu_cfs_quota_us.go, cpu_max.go), held open: who moves a
// limit twenty times a second reads it three times each.

import (
	"errors"
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// openedMax is an open limit.
type openedMax struct {
	t     tree
	path  string // of the group
	wrap  func(op, path string, err error) error
	inode uint64
	files [3]hostfs.File // quota, period and burst; v2: both, nil, burst
	buf   []byte
}

// OpenCPUMax implements Driver.
func (d *V1) OpenCPUMax(path string) (CPUMaxReader, error) {
	return openMax(d.cpu, path, d.wrap, [3]string{quotaFile, periodFile, burstFile})
}

// OpenCPUMax implements Driver.
func (d *V2) OpenCPUMax(path string) (CPUMaxReader, error) {
	return openMax(d.tree, path, d.wrap, [3]string{maxFile, "", maxBurstFile})
}

func openMax(t tree, path string, wrap func(op, path string, err error) error, names [3]string) (CPUMaxReader, error) {
	o := &openedMax{t: t, path: path, wrap: wrap}
	if err := o.open(names); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// open makes sure that the files belong to the directory that they are known by. A kernel
// may lack the file of the burst.
func (o *openedMax) open(names [3]string) error {
	dir, err := o.t.file(o.path, "")
	if err != nil {
		return fmt.Errorf("open cpu limit of cgroup %s: %w", o.path, err)
	}
	const op = "open cpu limit of"
	if o.inode, err = o.t.fs.Inode(dir); err != nil {
		return o.wrap(op, o.path, err)
	}
	for i, name := range names {
		if name == "" {
			continue
		}
		f, err := o.t.fs.Open(dir + "/" + name)
		if err == nil {
			o.files[i] = f
			continue
		}
		if err = o.wrap(op, o.path, err); i != len(names)-1 || !errors.Is(err, ErrUnsupported) {
			return err
		}
	}
	again, err := o.t.fs.Inode(dir)
	if err != nil {
		return o.wrap(op, o.path, err)
	}
	if again != o.inode {
		return fmt.Errorf("%s cgroup %s: %w: replaced meanwhile", op, o.path, ErrVanished)
	}
	return nil
}

// Inode implements CPUMaxReader.
func (o *openedMax) Inode() uint64 { return o.inode }

// Read implements CPUMaxReader.
func (o *openedMax) Read() (m CPUMax, err error) {
	if o.files[1] == nil {
		if err = o.read(0); err == nil {
			m, err = parseCPUMax(o.buf)
		}
	} else {
		m.QuotaUsec, err = o.readInt(0)
		if err == nil {
			m.PeriodUsec, err = o.readInt(1)
		}
		if err == nil && m.PeriodUsec <= 0 {
			err = fmt.Errorf("%w: period %d", ErrMalformed, m.PeriodUsec)
		}
	}
	if err == nil && o.files[2] != nil {
		m.BurstUsec, err = o.readInt(2)
	}
	if err != nil {
		return CPUMax{}, o.wrap("read cpu limit of", o.path, err)
	}
	return m, nil
}

func (o *openedMax) readInt(i int) (int64, error) {
	if err := o.read(i); err != nil {
		return 0, err
	}
	return parseInt(o.buf)
}

func (o *openedMax) read(i int) error {
	var err error
	o.buf, err = o.files[i].ReadRecord(o.buf)
	return err
}

// Close implements CPUMaxReader.
func (o *openedMax) Close() error {
	var err error
	for _, f := range o.files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}
