package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Device is a block device by the kernel's number, as it is in a dev_t of 32 bits: the major number, and 20 bits of the minor.
type Device uint32

// DeviceOf returns the device of a major and a minor number.
func DeviceOf(major, minor uint32) Device { return Device(major<<20 | minor&(1<<20-1)) }

// Numbers returns the major and the minor number.
func (d Device) Numbers() (major, minor uint32) { return uint32(d) >> 20, uint32(d) & (1<<20 - 1) }

// String returns "major:minor", as io.stat has it.
func (d Device) String() string {
	major, minor := d.Numbers()
	return fmt.Sprintf("%d:%d", major, minor)
}

// IOLimit is what a group may do on one device: bytes and operations a second. 0 is no limit.
type IOLimit struct {
	Device                                 Device
	ReadBPS, WriteBPS, ReadIOPS, WriteIOPS uint64
}

// ioKeys are the four numbers of a limit, as io.max names them.
var ioKeys = [4]string{"rbps", "wbps", "riops", "wiops"}

func (l *IOLimit) numbers() [4]*uint64 {
	return [4]*uint64{&l.ReadBPS, &l.WriteBPS, &l.ReadIOPS, &l.WriteIOPS}
}

// none reports whether a limit is none at all.
func (l IOLimit) none() bool { return l == IOLimit{Device: l.Device} }

// IOMax is all limits of a group, in one comparable text: "8:0 rbps=1048576 wiops=16;259:0 rbps=...", by device, and of each
// only the numbers that limit. "" is no limit.
type IOMax string

// IOMaxOf writes limits down. Devices without one are left out.
func IOMaxOf(limits []IOLimit) IOMax {
	limits = slices.DeleteFunc(slices.Clone(limits), IOLimit.none)
	slices.SortFunc(limits, func(a, b IOLimit) int { return cmp.Compare(a.Device, b.Device) })
	var b []byte
	for i := range limits {
		if i > 0 {
			b = append(b, ';')
		}
		b = append(b, limits[i].Device.String()...)
		for k, n := range limits[i].numbers() {
			if *n > 0 {
				b = strconv.AppendUint(append(append(append(b, ' '), ioKeys[k]...), '='), *n, 10)
			}
		}
	}
	return IOMax(b)
}

// Limits reads the text back, by device. What does not read as IOMaxOf writes it is an error.
func (m IOMax) Limits() ([]IOLimit, error) {
	var list []IOLimit
	for line := range strings.SplitSeq(string(m), ";") {
		if line == "" {
			continue
		}
		fields := strings.Fields(line)
		var l IOLimit
		var major, minor uint32
		if n, err := fmt.Sscanf(fields[0], "%d:%d", &major, &minor); n != 2 || err != nil {
			return nil, fmt.Errorf("io.max: %q names no device; expected major:minor", line)
		}
		l.Device = DeviceOf(major, minor)
		for _, f := range fields[1:] {
			key, text, _ := strings.Cut(f, "=")
			at := slices.Index(ioKeys[:], key)
			n, err := strconv.ParseUint(text, 10, 64)
			if at < 0 || err != nil {
				return nil, fmt.Errorf("io.max: %q is no limit; expected one of %s and a number", f, strings.Join(ioKeys[:], ", "))
			}
			*l.numbers()[at] = n
		}
		list = append(list, l)
	}
	return list, nil
}

// limits are those of a setting, none where it cannot be read.
func (m IOMax) limits() []IOLimit {
	list, _ := m.Limits()
	return list
}

// of returns the limit of one device.
func (m IOMax) of(d Device) IOLimit {
	for _, l := range m.limits() {
		if l.Device == d {
			return l
		}
	}
	return IOLimit{Device: d}
}

// atMost is a limit as a number that can be compared.
func atMost(n uint64) uint64 {
	if n == 0 {
		return math.MaxUint64
	}
	return n
}

// Tighter returns, number by number, the tighter limits of two settings.
func (m IOMax) Tighter(o IOMax) IOMax {
	list := m.limits()
	for _, l := range o.limits() {
		i := slices.IndexFunc(list, func(x IOLimit) bool { return x.Device == l.Device })
		if i < 0 {
			list = append(list, l)
			continue
		}
		for k, n := range list[i].numbers() {
			if b := *l.numbers()[k]; atMost(b) < atMost(*n) {
				*n = b
			}
		}
	}
	return IOMaxOf(list)
}

// Without returns what stands where the numbers of ours that stand unchanged are as they were found: what another program wrote
// since is left.
func (m IOMax) Without(ours, found IOMax) IOMax {
	list := m.limits()
	for _, l := range ours.limits() {
		was := found.of(l.Device)
		i := slices.IndexFunc(list, func(x IOLimit) bool { return x.Device == l.Device })
		if i < 0 {
			continue
		}
		for k, n := range list[i].numbers() {
			if *n == *l.numbers()[k] {
				*n = *was.numbers()[k]
			}
		}
	}
	return IOMaxOf(list)
}

// ioMaxSpec is what a task's group may do on each block device: io.max of cgroup v2, the four files blkio.throttle.*_device of
// v1. A cap says the whole value, since a number alone does not say of which device.
var ioMaxSpec = KnobSpec{
	Name:    "io.max",
	Takes:   [NumClaimKinds][]Class{ClaimCap: {BE}},
	Within:  func(a, b Setting) bool { return a.IO.Tighter(b.IO) == a.IO },
	Tighter: func(a, b Setting) Setting { return LimitIO(a.IO.Tighter(b.IO)) },
	// One write sets one device.
	Between: func(now, from, to Setting) bool {
		for _, part := range [...]IOMax{now.IO, from.IO, to.IO} {
			for _, l := range part.limits() {
				if is := now.IO.of(l.Device); is != from.IO.of(l.Device) && is != to.IO.of(l.Device) {
					return false
				}
			}
		}
		return true
	},
	Show: func(s Setting) string {
		if s.IO == "" {
			return "no limit"
		}
		return string(s.IO)
	},
	Encode: func(s Setting) any { return s.IO },
	Decode: func(b []byte) (Setting, error) {
		s := Ask(IOMaxKnob)
		if err := json.Unmarshal(b, &s.IO); err != nil {
			return s, err
		}
		_, err := s.IO.Limits()
		return s, err
	},
}

// LimitIO returns the setting of a task's limits on block devices.
func LimitIO(m IOMax) Setting { return Setting{Knob: IOMaxKnob, IO: m} }
