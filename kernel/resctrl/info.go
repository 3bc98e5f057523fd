package resctrl

// info/<resource>/*: what the CPU can do, per resource. One directory for each control
// ("L3", or "L3CODE" and "L3DATA" under cdp; "L2" likewise; "MB"; AMD's "SMBA") and one
// for monitoring ("L3_MON").
//
// https://docs.kernel.org/filesystems/resctrl.html ("Info directory")
//
//	L3/num_closids      16        groups, the root group included
//	L3/cbm_mask         fff       hexadecimal, the bits that a mask may have
//	L3/min_cbm_bits     1         (AMD: 0)
//	L3/shareable_bits   c00       hexadecimal, bits that devices use too
//	L3/sparse_masks     0         (since 6.7) 1: a mask may have gaps
//	L3/bit_usage        see info_bit_usage.go
//	L3/io_alloc         disabled  (since 6.19) devices as a group: enabled, disabled, not supported
//	MB/num_closids      8
//	MB/min_bandwidth    10        per cent; AMD: 0
//	MB/bandwidth_gran   10        per cent, values are rounded up to a multiple; AMD: 1
//	MB/delay_linear     1         AMD: 0
//	MB/thread_throttle_mode max   (Intel, since 5.12) max or per-thread
//
// Under cdp a group takes two hardware CLOSIDs, and num_closids of the L3 halves shows
// what is left. A group takes one CLOSID of every resource, so the smallest num_closids
// is the machine's.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// maxCLOSIDs is how many groups the kernel hands out at most, whatever the CPU has.
const maxCLOSIDs = 32

// Resource is a line of schemata and a directory of info.
type Resource string

// The resources that the driver knows.
const (
	L3     Resource = "L3"
	L3Code Resource = "L3CODE"
	L3Data Resource = "L3DATA"
	L2     Resource = "L2"
	L2Code Resource = "L2CODE"
	L2Data Resource = "L2DATA"
	MB     Resource = "MB"
	SMBA   Resource = "SMBA" // bandwidth to slow memory (CXL), AMD
)

// IsCache says whether a resource's values are masks of cache ways.
func (r Resource) IsCache() bool {
	switch r {
	case L3, L3Code, L3Data, L2, L2Code, L2Data:
		return true
	}
	return false
}

// IsBandwidth says whether a resource's values are bandwidth.
func (r Resource) IsBandwidth() bool { return r == MB || r == SMBA }

// cache returns the cache that a resource is of: L3 for L3CODE. Two halves of one cache
// share its ways.
func (r Resource) cache() Resource {
	switch r {
	case L3Code, L3Data:
		return L3
	case L2Code, L2Data:
		return L2
	}
	return r
}

// Unit says what a bandwidth value means.
type Unit string

// The units.
const (
	Percent    Unit = "%"        // of what a core could ask for: a throttle, not a share
	EighthGBps Unit = "1/8 GB/s" // AMD: a limit of all threads of the group in the domain together
	MiBps      Unit = "MiB/s"    // mounted with mba_MBps: a limit that the kernel steers to
)

// Sparse says whether masks may have gaps.
type Sparse uint8

// The answers.
const (
	SparseUnknown Sparse = iota // the kernel does not say (before 6.7): AMD may, Intel may not
	SparseNo
	SparseYes
)

// Cache is one cache resource's directory.
type Cache struct {
	Resource      Resource
	NumCLOSIDs    int
	FullMask      Mask // what a mask may have
	MinBits       int  // a mask has at least so many; 0: it may be empty
	ShareableBits Mask // ways that devices use as well
	Sparse        Sparse
	Usage         []DomainUsage // the present use of each domain's ways; nil when the kernel does not say
	IOAlloc       string        // "enabled", "disabled", "not supported"; "" when the kernel has no such file
}

// Bandwidth is one bandwidth resource's directory.
type Bandwidth struct {
	Resource     Resource
	NumCLOSIDs   int
	Unit         Unit
	Min          uint64 // the smallest value
	Max          uint64 // the greatest; 0 when the kernel does not say (AMD) or there is none (MiB/s)
	Gran         uint64 // values are rounded up to a multiple
	Linear       bool   // delay_linear
	ThrottleMode string // "max", "per-thread"; "" when the kernel does not say
}

// Round returns what a value will read back as.
func (b *Bandwidth) Round(v uint64) uint64 {
	if b.Unit == MiBps || b.Gran <= 1 {
		return v
	}
	return (v + b.Gran - 1) / b.Gran * b.Gran
}

// Info is what info says.
type Info struct {
	Caches     []Cache     // sorted by name
	Bandwidths []Bandwidth // sorted by name
	Monitoring *Monitoring // nil where nothing can be monitored
	Unknown    []string    // directories that the driver does not know
}

// Cache returns a cache resource, nil when it is not there.
func (i *Info) Cache(r Resource) *Cache {
	for k := range i.Caches {
		if i.Caches[k].Resource == r {
			return &i.Caches[k]
		}
	}
	return nil
}

// Bandwidth returns a bandwidth resource, nil when it is not there.
func (i *Info) Bandwidth(r Resource) *Bandwidth {
	for k := range i.Bandwidths {
		if i.Bandwidths[k].Resource == r {
			return &i.Bandwidths[k]
		}
	}
	return nil
}

// NumCLOSIDs returns how many control groups there can be, the root group included; 0
// when nothing can be controlled, in which case no control group can be made.
func (i *Info) NumCLOSIDs() int {
	n := maxCLOSIDs + 1
	for k := range i.Caches {
		n = min(n, i.Caches[k].NumCLOSIDs)
	}
	for k := range i.Bandwidths {
		n = min(n, i.Bandwidths[k].NumCLOSIDs)
	}
	if n > maxCLOSIDs && len(i.Caches)+len(i.Bandwidths) == 0 {
		return 0
	}
	return min(n, maxCLOSIDs)
}

// ioAlloc says whether devices hold a CLOSID of their own.
func (i *Info) ioAlloc() bool {
	return slices.ContainsFunc(i.Caches, func(c Cache) bool { return c.IOAlloc == "enabled" })
}

// Info reads all of info.
func (d *Driver) Info() (*Info, error) {
	var info *Info
	err := d.locked(toRead, func() (err error) {
		info, err = d.info()
		return err
	})
	return info, err
}

func (d *Driver) info() (*Info, error) {
	dir := d.at.Point + "/" + infoDir
	entries, err := d.list(dir)
	if err != nil {
		return nil, fmt.Errorf("read resctrl info: %w", d.explainRoot(err))
	}
	info := &Info{}
	for _, e := range entries {
		if !e.IsDir {
			continue
		}
		r := infoReader{d: d, dir: dir + "/" + e.Name}
		switch resource := Resource(e.Name); {
		case resource.IsCache():
			info.Caches = append(info.Caches, r.cache(resource))
		case resource.IsBandwidth():
			info.Bandwidths = append(info.Bandwidths, r.bandwidth(resource, d.at.Options))
		case e.Name == l3MonDir:
			info.Monitoring = r.monitoring()
		default:
			info.Unknown = append(info.Unknown, e.Name)
		}
		if r.err != nil {
			return nil, fmt.Errorf("read resctrl info: %w", d.explainRoot(r.err))
		}
	}
	return info, nil
}

// infoReader reads the files of one directory, and keeps the first error.
type infoReader struct {
	d   *Driver
	dir string
	buf []byte
	err error
}

func (r *infoReader) cache(resource Resource) Cache {
	c := Cache{
		Resource:      resource,
		NumCLOSIDs:    int(r.number("num_closids", 10)),
		FullMask:      Mask(r.number("cbm_mask", 16)),
		MinBits:       int(r.number("min_cbm_bits", 10)),
		ShareableBits: Mask(r.optionalNumber("shareable_bits", 16, 0)), // since 4.17
		IOAlloc:       r.optional("io_alloc"),
	}
	switch r.optional("sparse_masks") {
	case "0":
		c.Sparse = SparseNo
	case "1":
		c.Sparse = SparseYes
	}
	if text := r.optional("bit_usage"); text != "" && r.err == nil {
		c.Usage, r.err = parseBitUsage(text)
	}
	if r.err == nil && (c.NumCLOSIDs < 1 || c.FullMask == 0) {
		r.err = fmt.Errorf("%s: %w: num_closids %d, cbm_mask %s", r.dir, ErrMalformed, c.NumCLOSIDs, c.FullMask)
	}
	return c
}

func (r *infoReader) bandwidth(resource Resource, o MountOptions) Bandwidth {
	b := Bandwidth{
		Resource:     resource,
		NumCLOSIDs:   int(r.number("num_closids", 10)),
		Min:          r.number("min_bandwidth", 10),
		Gran:         r.number("bandwidth_gran", 10),
		Linear:       r.number("delay_linear", 10) != 0,
		ThrottleMode: r.optional("thread_throttle_mode"),
	}
	switch {
	case o.MBps && resource == MB:
		b.Unit, b.Min, b.Gran = MiBps, 0, 1 // the files still tell of the per cent below it
	case !b.Linear:
		// Linux drives no other CPUs without a linear scale than AMD's.
		b.Unit = EighthGBps
	default:
		b.Unit, b.Max = Percent, 100
	}
	if r.err == nil && b.NumCLOSIDs < 1 {
		r.err = fmt.Errorf("%s: %w: num_closids %d", r.dir, ErrMalformed, b.NumCLOSIDs)
	}
	return b
}

// text reads a file without the blanks around it. Each of the kernel's ends its line: one that does not was read half way, and a 1 of a 10
// would be believed.
func (r *infoReader) text(name string) string {
	if r.err != nil {
		return ""
	}
	if r.buf, r.err = r.d.fs.ReadFile(r.dir+"/"+name, r.buf); r.err == nil && !bytes.HasSuffix(r.buf, []byte("\n")) {
		r.err = fmt.Errorf("%s/%s: %w: %q does not end its line", r.dir, name, ErrMalformed, clip(string(r.buf)))
	}
	return strings.TrimSpace(string(r.buf))
}

// optional reads a file that older kernels lack: "" then. An io_alloc_cbm of a disabled
// io_alloc, and the like, cannot be read either, and is no error.
func (r *infoReader) optional(name string) string {
	if r.err != nil {
		return ""
	}
	s := r.text(name)
	if errors.Is(r.err, fs.ErrNotExist) {
		r.err = nil
		return ""
	}
	return s
}

func (r *infoReader) number(name string, base int) uint64 {
	s := r.text(name)
	if r.err != nil {
		return 0
	}
	v, err := parseNumber(s, base)
	if err != nil {
		r.err = fmt.Errorf("%s/%s: %w", r.dir, name, err)
	}
	return v
}

func (r *infoReader) optionalNumber(name string, base int, absent uint64) uint64 {
	v := r.number(name, base)
	if errors.Is(r.err, fs.ErrNotExist) {
		r.err = nil
		return absent
	}
	return v
}

// parseNumber reads a file of one number that fits an int.
func parseNumber(s string, base int) (uint64, error) {
	v, err := strconv.ParseUint(s, base, bits.UintSize-1)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is no number of base %d", ErrMalformed, clip(s), base)
	}
	return v, nil
}
