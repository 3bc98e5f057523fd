package kernfs

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// resctrlSchema is a resource: a line of schemata and a directory of info.
type resctrlSchema struct {
	name    resctrl.Resource
	closids int
	// ctrl is the values, by CLOSID within each domain. mbps is those of mba_MBps.
	ctrl [][]uint32
	mbps [][]uint32
	ways int            // of a cache
	of   func(int) int  // a CPU's place among the domains
	id   func(int) int  // what the kernel calls a domain
	peer *resctrlSchema // the other half of the cache under cdp
}

func (s *resctrlSchema) isMB() bool { return s.name == resctrl.MB }

// makeSchemata makes the resources in the order in which the kernel shows them.
func (r *resctrlFS) makeSchemata() {
	add := func(s resctrlSchema, domains int) *resctrlSchema {
		for range domains {
			s.ctrl = append(s.ctrl, make([]uint32, s.closids))
			s.mbps = append(s.mbps, make([]uint32, s.closids))
		}
		r.schemata = append(r.schemata, &s)
		return &s
	}
	cache := func(like resctrlSchema, domains int, cdp bool) {
		like.closids = r.opt.CLOSIDs
		if !cdp {
			add(like, domains)
			return
		}
		like.closids = max(1, r.opt.CLOSIDs/2)
		name := like.name
		like.name = name + "DATA"
		data := add(like, domains)
		like.name = name + "CODE"
		code := add(like, domains)
		data.peer, code.peer = code, data
	}
	same := func(d int) int { return d }
	r.schemata = nil
	add(resctrlSchema{name: resctrl.MB, closids: min(maxMBCLOSIDs, r.opt.CLOSIDs), of: r.cfg.CacheOf, id: same}, r.cfg.Caches())
	if r.opt.L2Ways > 0 {
		cache(resctrlSchema{name: resctrl.L2, ways: r.opt.L2Ways, of: r.cfg.CoreOf, id: func(core int) int { return l2ID(&r.cfg, core) }}, r.cfg.Sockets*r.cfg.CoresPerSocket, r.mount.CDPL2)
	}
	cache(resctrlSchema{name: resctrl.L3, ways: r.cfg.LLCWays, of: r.cfg.CacheOf, id: same}, r.cfg.Caches(), r.mount.CDP)
}

// l2ID is what the kernel calls a core's L2: by the number of its interrupt controller, with gaps.
func l2ID(c *machine.Config, core int) int {
	return core/c.CoresPerSocket<<6 | core%c.CoresPerSocket<<1
}

// full is the mask of all ways.
func (s *resctrlSchema) full() uint32 { return uint32(1)<<s.ways - 1 }

// isL2 says whether it is of the L2s, of which no device fills anything.
func (s *resctrlSchema) isL2() bool {
	return s.name != resctrl.L3Code && s.name != resctrl.L3Data && s.name != resctrl.L3 && !s.isMB()
}

// shareable are the ways that devices fill too.
func (r *resctrlFS) shareable(s *resctrlSchema) uint32 {
	if s.isL2() {
		return 0
	}
	return r.opt.ShareableBits
}

// lives reports whether a domain has a CPU among those.
func (r *resctrlFS) lives(s *resctrlSchema, d int, online model.CPUSet) bool {
	for cpu := range r.cfg.CPUs() {
		if s.of(cpu) == d && online.Has(cpu) {
			return true
		}
	}
	return false
}

// domains ranges over a resource's domains that have a CPU online.
func (r *resctrlFS) domains(s *resctrlSchema) iter.Seq[int] {
	return func(yield func(int) bool) {
		for d := range s.ctrl {
			if r.lives(s, d, r.cpus) && !yield(d) {
				return
			}
		}
	}
}

// maxCLOSIDs is how many control groups there can be.
func (r *resctrlFS) maxCLOSIDs() int {
	n := kernelCLOSIDs
	for _, s := range r.schemata {
		n = min(n, s.closids)
	}
	return n
}

// set changes a value, and what the machine does.
func (r *resctrlFS) set(s *resctrlSchema, d, closid int, v uint32) {
	s.ctrl[d][closid] = v
	var err error
	switch {
	case s.isMB():
		err = r.m.SetMBA(r.classOf(closid), d, int(v))
	case s.name != resctrl.L3Code && !s.isL2(): // see resctrl.go: the physics has one mask
		err = r.m.SetWays(r.classOf(closid), d, v)
	}
	if err != nil {
		panic("kernfs: a value that resctrl takes: " + err.Error())
	}
}

// setDefault gives a class on a domain everything. One that was never made has it.
func (r *resctrlFS) setDefault(s *resctrlSchema, d, closid int) {
	if closid >= r.maxCLOSIDs() {
		return
	}
	v := s.full()
	if s.isMB() {
		v = 100
		s.mbps[d][closid] = unlimitedMBps
	}
	r.set(s, d, closid, v)
}

// initAllocation gives a new group its ways: those that devices fill, those of groups that
// share, and those that nobody uses, as far as they lie together.
func (r *resctrlFS) initAllocation(g *resctrlGroup) error {
	for _, s := range r.schemata {
		for d := range r.domains(s) {
			if s.isMB() {
				continue
			}
			mine, used := r.shareable(s), r.shareable(s)
			for _, o := range r.groups {
				ctrl := s.ctrl[d][o.closid]
				if s.peer != nil {
					ctrl |= s.peer.ctrl[d][o.closid]
				}
				used |= ctrl
				if o.mode == resctrl.Shareable {
					mine |= ctrl
				}
			}
			mine = firstRun(mine | s.full()&^used)
			if mine == 0 {
				r.say(fmt.Sprintf("No space on %s:%d\n", s.name, s.id(d)))
				return unix.ENOSPC
			}
			r.set(s, d, g.closid, mine)
		}
	}
	mb := r.schemata[0]
	for d := range r.domains(mb) {
		mb.mbps[d][g.closid] = unlimitedMBps
		r.set(mb, d, g.closid, 100)
	}
	return nil
}

// firstRun returns the lowest ones of a mask that have no gap.
func firstRun(mask uint32) uint32 {
	low := bits.TrailingZeros32(mask)
	run := bits.TrailingZeros32(^(mask >> low))
	if mask == 0 {
		return 0
	}
	return uint32(uint64(1)<<run-1) << low
}

// showSchemata renders schemata, padded as up to 6.14 or not.
func (r *resctrlFS) showSchemata(g *resctrlGroup, buf []byte) []byte {
	width := max(3, (r.cfg.LLCWays+3)/4, (r.opt.L2Ways+3)/4)
	return r.table(buf, func(s *resctrlSchema, d int) string {
		v := s.ctrl[d][g.closid]
		if s.isMB() && r.mount.MBps {
			v = s.mbps[d][g.closid]
		}
		switch {
		case r.opt.Unpadded && s.isMB():
			return strconv.FormatUint(uint64(v), 10)
		case r.opt.Unpadded:
			return strconv.FormatUint(uint64(v), 16)
		case s.isMB():
			return fmt.Sprintf("%*d", width, v)
		}
		return fmt.Sprintf("%0*x", width, v)
	})
}

// showSize renders size: bytes of cache, and bandwidths as they are.
func (r *resctrlFS) showSize(g *resctrlGroup, buf []byte) []byte {
	perWay := func(s *resctrlSchema) uint64 {
		if s.isL2() {
			return l2Bytes / uint64(s.ways)
		}
		return uint64(r.cfg.LLCBytes) / uint64(s.ways)
	}
	return r.table(buf, func(s *resctrlSchema, d int) string {
		v := uint64(s.ctrl[d][g.closid])
		switch {
		case s.isMB() && r.mount.MBps:
			v = uint64(s.mbps[d][g.closid])
		case !s.isMB():
			v = perWay(s) * uint64(bits.OnesCount64(v))
		}
		return strconv.FormatUint(v, 10)
	})
}

// table renders a line for each resource with a value for each domain that is online.
func (r *resctrlFS) table(buf []byte, value func(s *resctrlSchema, d int) string) []byte {
	const nameWidth = 6
	for _, s := range r.schemata {
		if r.opt.Unpadded {
			buf = append(buf, s.name...)
		} else {
			buf = fmt.Appendf(buf, "%*s", nameWidth, s.name)
		}
		sep := byte(':')
		for d := range r.domains(s) {
			buf = append(append(buf, sep), strconv.Itoa(s.id(d))...)
			buf = append(append(buf, '='), value(s, d)...)
			sep = ';'
		}
		if sep == ':' {
			buf = append(buf, ':')
		}
		buf = append(buf, '\n')
	}
	return buf
}

// staged is a write of schemata that was read and not carried out yet.
type staged struct {
	s *resctrlSchema
	d int
	v uint32
}

// errQuiet is a refusal without a word.
var errQuiet = errors.New("no word")

// writeSchemata takes lines of values. Each is looked at before any is carried out, but for
// bandwidths of mba_MBps, which are stored as they are read.
func (r *resctrlFS) writeSchemata(g *resctrlGroup, data []byte) error {
	text, ok := strings.CutSuffix(string(data), "\n")
	if !ok {
		return unix.EINVAL
	}
	r.clearStatus()
	var list []staged
	for line := range strings.SplitSeq(text, "\n") {
		name, rest, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		switch {
		case !ok:
			return r.refuse("Missing ':'")
		case rest == "":
			return r.refuse("Missing '" + name + "' value")
		}
		s := r.schema(name)
		if s == nil || g.closid >= s.closids {
			return r.refuse("Unknown or unsupported resource name '" + name + "'")
		}
		if err := r.readLine(g, s, rest, &list); err != nil {
			if !errors.Is(err, errQuiet) {
				r.say(err.Error() + "\n")
			}
			return unix.EINVAL
		}
	}
	for _, v := range list {
		r.set(v.s, v.d, g.closid, v.v)
	}
	return nil
}

func (r *resctrlFS) schema(name string) *resctrlSchema {
	for _, s := range r.schemata {
		if string(s.name) == name {
			return s
		}
	}
	return nil
}

// readLine reads "0=x;1=y". Its errors are what last_cmd_status says.
func (r *resctrlFS) readLine(g *resctrlGroup, s *resctrlSchema, line string, list *[]staged) error {
	for line != "" {
		var part string
		part, line, _ = strings.Cut(line, ";")
		id, value, ok := strings.Cut(part, "=")
		num, err := strconv.ParseUint(id, 10, 64)
		if !ok || err != nil {
			return errors.New("Missing '=' or non-numeric domain") //nolint:staticcheck // the kernel's words
		}
		d := -1
		for at := range r.domains(s) {
			if uint64(s.id(at)) == num {
				d = at
			}
		}
		if d < 0 {
			return errQuiet
		}
		for _, v := range *list {
			if v.s == s && v.d == d {
				return fmt.Errorf("Duplicate domain %d", num) //nolint:staticcheck // the kernel's words
			}
		}
		v, err := r.readValue(g, s, d, strings.TrimSpace(value))
		if err != nil {
			return err
		}
		if s.isMB() && r.mount.MBps {
			s.mbps[d][g.closid] = v
			continue
		}
		*list = append(*list, staged{s, d, v})
	}
	return nil
}

func (r *resctrlFS) readValue(g *resctrlGroup, s *resctrlSchema, d int, text string) (uint32, error) {
	if s.isMB() {
		return r.readBandwidth(text)
	}
	v, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
	if err != nil {
		return 0, errors.New("Non-hex character in the mask " + text)
	}
	if v == 0 || v > uint64(s.full()) {
		return 0, errors.New("Mask out of range") //nolint:staticcheck // the kernel's words
	}
	mask := uint32(v)
	switch {
	case firstRun(mask) != mask:
		return 0, fmt.Errorf("The mask %x has non-consecutive 1-bits", v) //nolint:staticcheck // the kernel's words
	case r.overlaps(g.closid, s, d, mask, true):
		return 0, errors.New("Overlaps with exclusive group") //nolint:staticcheck // the kernel's words
	case g.mode == resctrl.Exclusive && r.overlaps(g.closid, s, d, mask, false):
		return 0, errors.New("Overlaps with other group") //nolint:staticcheck // the kernel's words
	}
	return mask, nil
}

// readBandwidth reads a bandwidth, rounded up as the kernel does.
func (r *resctrlFS) readBandwidth(text string) (uint32, error) {
	v, err := strconv.ParseUint(text, 10, 32)
	switch {
	case err != nil:
		return 0, errors.New("Invalid MB value " + text)
	case r.mount.MBps:
		return uint32(v), nil
	case v < minBandwidth || v > 100:
		return 0, fmt.Errorf("MB value %d out of range [%d,%d]", v, minBandwidth, 100)
	}
	return uint32(v+bandwidthGran-1) / bandwidthGran * bandwidthGran, nil
}

// overlaps says whether another group has a way of a mask: an exclusive one, or any, with what
// devices fill.
func (r *resctrlFS) overlaps(closid int, s *resctrlSchema, d int, mask uint32, exclusive bool) bool {
	if !exclusive && mask&r.shareable(s) != 0 {
		return true
	}
	for _, g := range r.groups {
		held := s.ctrl[d][g.closid]
		if s.peer != nil {
			held |= s.peer.ctrl[d][g.closid]
		}
		if g.closid != closid && held&mask != 0 && (!exclusive || g.mode == resctrl.Exclusive) {
			return true
		}
	}
	return false
}

// writeMode takes a mode.
func (r *resctrlFS) writeMode(g *resctrlGroup, data []byte) error {
	text, ok := strings.CutSuffix(string(data), "\n")
	if !ok {
		return unix.EINVAL
	}
	r.clearStatus()
	mode := resctrl.Mode(text)
	switch {
	case mode == g.mode:
		return nil
	case mode == resctrl.Shareable:
	case mode == resctrl.Exclusive:
		for _, s := range r.schemata {
			for d := range r.domains(s) {
				if !s.isMB() && r.overlaps(g.closid, s, d, s.ctrl[d][g.closid], false) {
					return r.refuse("Schemata overlaps")
				}
			}
		}
	case mode == resctrl.PseudoLockSetup && g == r.root:
		return r.refuse("Cannot pseudo-lock default group")
	case mode == resctrl.PseudoLockSetup && (r.mount.CDP || r.mount.CDPL2):
		return r.refuse("CDP enabled")
	case mode == resctrl.PseudoLockSetup:
		return r.refuse("Pseudo-locking not supported")
	default:
		return r.refuse("Unknown or unsupported mode")
	}
	g.mode = mode
	return nil
}
