package resctrl

// schemata: what a control group may use of each resource, per domain (a cache instance,
// by the cache's id).
//
// https://docs.kernel.org/filesystems/resctrl.html ("Schemata files")
//
//	    MB:0= 50;1=100         up to 6.14: a table, padded
//	    L3:0=00ff;1=0fff
//	MB:0=50;1=100              since 6.15
//	L3:0=ff;1=fff
//	L3:uninitialized           a group in pseudo-locksetup mode
//
// Cache values are masks in hexadecimal, bandwidths decimal in the resource's Unit; no
// limit is 100 per cent, or 4294967295 MiB/s. What is written is staged, and one bad value
// refuses the whole write; under mba_MBps bandwidths are stored while they are parsed, so
// the lines before the bad one stand. They are therefore written last here. Domains that
// are not named keep what they have. The kernel rounds per cent up to a multiple of
// bandwidth_gran.
//
// A domain whose last CPU goes offline leaves the file, and naming it is EINVAL without a
// word. When it comes back it has the default (everything) for all groups.

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const schemataFile = "schemata"

// Unlimited is what a bandwidth of a group without a limit reads as under mba_MBps.
const Unlimited = 1<<32 - 1

// Value is one domain's value.
type Value struct {
	Domain int
	Value  uint64 // a Mask, or a bandwidth in the resource's Unit
}

// Line is one resource's line.
type Line struct {
	Resource Resource
	Domains  []Value // in the kernel's order
	// Uninitialized: the group waits for its pseudo-locked region and has no values.
	Uninitialized bool
	// Raw is the text after the colon of a resource that the driver does not know;
	// it is kept for people, and never written.
	Raw string
}

// Schemata are a group's values, in the order in which the kernel shows them.
type Schemata []Line

// Ref names one value of schemata.
type Ref struct {
	Resource Resource
	Domain   int
}

// String returns "L3:1".
func (r Ref) String() string { return string(r.Resource) + ":" + strconv.Itoa(r.Domain) }

// Get returns a value, and whether it is there.
func (s Schemata) Get(r Resource, domain int) (uint64, bool) {
	for _, line := range s {
		if line.Resource != r {
			continue
		}
		for _, v := range line.Domains {
			if v.Domain == domain {
				return v.Value, true
			}
		}
	}
	return 0, false
}

// Set adds or replaces a value.
func (s *Schemata) Set(r Resource, domain int, value uint64) {
	for i := range *s {
		line := &(*s)[i]
		if line.Resource != r {
			continue
		}
		for k := range line.Domains {
			if line.Domains[k].Domain == domain {
				line.Domains[k].Value = value
				return
			}
		}
		line.Domains = append(line.Domains, Value{Domain: domain, Value: value})
		return
	}
	*s = append(*s, Line{Resource: r, Domains: []Value{{Domain: domain, Value: value}}})
}

// Has says whether there is a line of a resource.
func (s Schemata) Has(r Resource) bool {
	return slices.ContainsFunc(s, func(l Line) bool { return l.Resource == r })
}

// Domains returns the domains of a resource, as the kernel orders them.
func (s Schemata) Domains(r Resource) []int {
	var ids []int
	for _, line := range s {
		if line.Resource == r {
			for _, v := range line.Domains {
				ids = append(ids, v.Domain)
			}
		}
	}
	return ids
}

// Differences returns where now has another value than s, among what s names. Values
// whose domain is not in now (offline) are not differences.
func (s Schemata) Differences(now Schemata) []Ref {
	var refs []Ref
	for _, line := range s {
		for _, v := range line.Domains {
			if have, ok := now.Get(line.Resource, v.Domain); ok && have != v.Value {
				refs = append(refs, Ref{line.Resource, v.Domain})
			}
		}
	}
	return refs
}

// String returns the text that the kernel takes, unpadded, one line a resource, each with
// its newline. Lines without values are left out.
func (s Schemata) String() string {
	var b strings.Builder
	for _, line := range s {
		if len(line.Domains) == 0 {
			continue
		}
		b.WriteString(string(line.Resource))
		for i, v := range line.Domains {
			b.WriteByte(":;"[min(i, 1)])
			b.WriteString(strconv.Itoa(v.Domain))
			b.WriteByte('=')
			b.WriteString(strconv.FormatUint(v.Value, valueBase(line.Resource)))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// valueBase is how a resource's values are written.
func valueBase(r Resource) int {
	if r.IsCache() {
		return 16
	}
	return 10
}

// ParseSchemata reads a schemata file, in either column style, and String's form.
func ParseSchemata(text string) (Schemata, error) {
	var s Schemata
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, rest, ok := strings.Cut(line, ":")
		r := Resource(strings.TrimSpace(name))
		if !ok || r == "" || s.Has(r) {
			return nil, fmt.Errorf("%w: schemata line %q", ErrMalformed, clip(line))
		}
		l := Line{Resource: r}
		switch {
		case rest == "uninitialized":
			l.Uninitialized = true
		case !r.IsCache() && !r.IsBandwidth():
			l.Raw = rest
		default:
			err := eachDomain(rest, func(id int, value string) error {
				v, err := strconv.ParseUint(value, valueBase(r), 64)
				if err != nil || slices.ContainsFunc(l.Domains, func(v Value) bool { return v.Domain == id }) {
					return fmt.Errorf("%w: schemata line %q", ErrMalformed, clip(line))
				}
				l.Domains = append(l.Domains, Value{Domain: id, Value: v})
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
		s = append(s, l)
	}
	return s, nil
}

// eachDomain calls f for each part of "0=x;1= y", with the blanks around the value taken
// off. Without any domain (all are offline) the text is empty.
func eachDomain(text string, f func(id int, value string) error) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ";") {
		id, value, ok := strings.Cut(part, "=")
		// Cache ids have up to 32 bits (Arm).
		n, err := strconv.ParseUint(strings.TrimSpace(id), 10, 32)
		if !ok || err != nil {
			return fmt.Errorf("%w: domain %q", ErrMalformed, clip(part))
		}
		if err := f(int(n), strings.TrimSpace(value)); err != nil {
			return err
		}
	}
	return nil
}

// ReadSchemata reads a control group's schemata.
func (d *Driver) ReadSchemata(n Name) (Schemata, error) {
	// One file, read whole: no lock is needed.
	path := d.path(n.Parent()) + "/" + schemataFile
	data, err := d.fs.ReadFile(path, nil)
	if err != nil {
		return nil, fmt.Errorf("read schemata: %w", d.explain(n, err))
	}
	s, err := ParseSchemata(string(data))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// Plan is what a wish comes to.
type Plan struct {
	Write   Schemata // what must be written: the values that differ, bandwidth last
	Expect  Schemata // what the whole wish will read as, rounded, without Missing
	Missing []Ref    // wished for, and not there: the domain is offline
}

// PlanSchemata compares a wish with what stands there. A wish for L3 (or L2) stands for
// both halves where resctrl is mounted with cdp (cdpl2). A resource that the machine does
// not have is ErrUnsupported. Whether a value is allowed is left to the kernel, which
// refuses a bad one before it changes anything.
func PlanSchemata(info *Info, now, want Schemata) (Plan, error) {
	var p Plan
	for _, bandwidth := range []bool{false, true} {
		for _, line := range want {
			if line.Resource.IsBandwidth() != bandwidth || len(line.Domains) == 0 {
				continue
			}
			halves, err := resolve(now, line.Resource)
			if err != nil {
				return Plan{}, err
			}
			if bandwidth && info.Bandwidth(line.Resource) == nil { // then nobody knows what a value is rounded to, and would read back as
				return Plan{}, fmt.Errorf("plan schemata: %w: schemata have %s, and info was listed without it", ErrMalformed, line.Resource)
			}
			for _, r := range halves {
				p.add(info, now, r, line.Domains)
			}
		}
	}
	return p, nil
}

// resolve returns the lines of now that a resource means.
func resolve(now Schemata, r Resource) ([]Resource, error) {
	code, data := r+"CODE", r+"DATA"
	switch {
	case now.Has(r):
		return []Resource{r}, nil
	case r.IsCache() && now.Has(code) && now.Has(data):
		return []Resource{code, data}, nil
	}
	return nil, fmt.Errorf("plan schemata: %w: no %s here", ErrUnsupported, r)
}

func (p *Plan) add(info *Info, now Schemata, r Resource, values []Value) {
	for _, v := range values {
		have, ok := now.Get(r, v.Domain)
		if !ok {
			p.Missing = append(p.Missing, Ref{r, v.Domain})
			continue
		}
		expect := v.Value
		if r.IsBandwidth() {
			expect = info.Bandwidth(r).Round(v.Value)
		}
		p.Expect.Set(r, v.Domain, expect)
		if have != expect {
			p.Write.Set(r, v.Domain, v.Value)
		}
	}
}

// Change is what a write of schemata did.
type Change struct {
	Found   Schemata // before
	Now     Schemata // afterwards, also after a refused write; nil if it could not be read
	Written string   // the text of the write; "" when nothing differed
	Missing []Ref    // wished for, and not there: the domain is offline
}

// WriteSchemata brings one of our control groups to the values that want names, and
// leaves its others. It writes once, only what differs, and reads back. Nothing is written
// when nothing differs.
//
// The error is an *Error with the kernel's words when it refused. ErrDomainGone: a domain
// went offline meanwhile; ask again. ErrReadBack: the write was taken and something else
// stands there. Change says what stands there now in each case.
func (d *Driver) WriteSchemata(id Identity, want Schemata) (Change, error) {
	var c Change
	err := d.locked(toChange, func() error {
		if id.Name.IsMon() {
			return fmt.Errorf("write schemata of %s: %w: a monitoring group has none", id.Name, ErrUnsupported)
		}
		if err := d.verifyOurs(id); err != nil {
			return fmt.Errorf("write schemata: %w", err)
		}
		info, err := d.info()
		if err != nil {
			return err
		}
		c.Found, err = d.ReadSchemata(id.Name)
		if err != nil {
			return err
		}
		plan, err := PlanSchemata(info, c.Found, want)
		if err != nil {
			return err
		}
		c.Missing, c.Now = plan.Missing, c.Found
		if len(plan.Write) == 0 {
			return nil
		}
		c.Written = plan.Write.String()
		err = d.writeSchemata(id.Name, c.Written)
		return d.readBack(id.Name, plan, &c, err)
	})
	return c, err
}

// writeSchemata hands a text to the kernel. The caller holds the lock.
func (d *Driver) writeSchemata(n Name, text string) error {
	path := d.path(n) + "/" + schemataFile
	return d.change(clears, "write", path, text, func() error {
		return d.fs.WriteFile(path, []byte(text))
	})
}

// readBack compares what stands there with what was meant, and says what a refusal
// without a word was about.
func (d *Driver) readBack(n Name, plan Plan, c *Change, refused error) error {
	now, err := d.ReadSchemata(n)
	c.Now = now
	if refused == nil && err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if refused != nil {
		var e *Error
		if errors.As(refused, &e) && e.Kind == nil && e.Status == "" && errors.Is(e.Err, unix.EINVAL) && err == nil {
			if off := absentFrom(now, plan.Write); len(off) > 0 {
				e.Kind = fmt.Errorf("%w: %v", ErrDomainGone, off)
			}
		}
		return refused
	}
	if refs := plan.Expect.Differences(now); len(refs) > 0 {
		r := refs[0]
		want, _ := plan.Expect.Get(r.Resource, r.Domain)
		have, _ := now.Get(r.Resource, r.Domain)
		base := valueBase(r.Resource)
		return &Error{
			Op: "write", Path: d.path(n) + "/" + schemataFile, Text: c.Written,
			Kind: fmt.Errorf("%w: %s is %s, not %s (and %d more)", ErrReadBack, r,
				strconv.FormatUint(have, base), strconv.FormatUint(want, base), len(refs)-1),
		}
	}
	return nil
}

// absentFrom returns the values of s whose domain is not in now.
func absentFrom(now, s Schemata) []Ref {
	var refs []Ref
	for _, line := range s {
		for _, v := range line.Domains {
			if _, ok := now.Get(line.Resource, v.Domain); !ok {
				refs = append(refs, Ref{line.Resource, v.Domain})
			}
		}
	}
	return refs
}
