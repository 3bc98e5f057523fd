// Package uncore counts what a CPU's die does outside of its cores, and says how long its memory takes to answer.
package uncore

// /sys/bus/event_source/devices: one folder a PMU.
//
// https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-event_source-devices-format
// https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-event_source-devices-events
//
//	uncore_cha_0/type                  45                       (for perf_event_open; another after each boot)
//	uncore_cha_0/cpumask               0,28                     (one CPU a die; events have to be opened on these)
//	uncore_cha_0/format/event          config:0-7
//	uncore_cha_0/format/umask          config:8-15,32-57        (the value's low bits go to the first range)
//	uncore_cha_0/format/filter_opc0    config1:41-50            (Skylake-SP)
//	msr/events/tsc                     event=0x00               (a PMU names some events itself, or none)

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf"
)

const devices = "/sys/bus/event_source/devices"

// ErrMalformed is returned when a file does not read as its documentation says, or an event has what its PMU does not.
var ErrMalformed = errors.New("malformed")

// PMU is one folder.
type PMU struct {
	Name  string
	Type  uint32
	files hostfs.FS
}

// Names lists the PMUs that have the name, or the name and a number ("uncore_cha_12"), by number.
func Names(files hostfs.FS, name string) ([]string, error) {
	entries, err := files.ReadDir(devices)
	if err != nil {
		return nil, fmt.Errorf("list PMUs: %w", err)
	}
	numbers, names := map[string]uint64{}, []string{}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name, name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimPrefix(rest, "_"), 10, 31)
		if rest == "" || err == nil && rest[0] == '_' {
			numbers[e.Name], names = n, append(names, e.Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return int(numbers[a]) - int(numbers[b]) })
	return names, nil
}

// ReadPMU reads one folder's number.
func ReadPMU(files hostfs.FS, name string) (*PMU, error) {
	p := &PMU{Name: name, files: files}
	text, err := p.read("type")
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%s/%s/type: %w: %q", devices, name, ErrMalformed, clip(text))
	}
	p.Type = uint32(n)
	return p, nil
}

// CPUs returns on which CPUs the PMU's events are opened at present, one a die.
func (p *PMU) CPUs() ([]int, error) {
	text, err := p.read("cpumask")
	if err != nil {
		return nil, err
	}
	set, err := cpus.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s/%s/cpumask: %w: %w", devices, p.Name, ErrMalformed, err)
	}
	return set.Members(), nil
}

// Event returns an event that the PMU names itself.
func (p *PMU) Event(name string) (perf.Raw, error) {
	terms, err := p.read("events/" + name)
	if err != nil {
		return perf.Raw{}, err
	}
	return p.Encode(terms)
}

// Encode returns the event of fields and values as the kernel and perf(1) write them: "event=0x36,umask=0x21,inv". A field
// without a value is 1. What the PMU's format has no field or no room for is an error: it would count something else.
func (p *PMU) Encode(terms string) (perf.Raw, error) {
	e := perf.Raw{Name: p.Name + "/" + clip(terms) + "/", Type: p.Type}
	for term := range strings.SplitSeq(terms, ",") {
		field, value, has := strings.Cut(term, "=")
		v := uint64(1)
		if has {
			var err error
			if v, err = strconv.ParseUint(value, 0, 64); err != nil {
				return perf.Raw{}, fmt.Errorf("%s: %w value %q", e.Name, ErrMalformed, clip(value))
			}
		}
		if field == "" || strings.Contains(field, "/") {
			return perf.Raw{}, fmt.Errorf("%s: %w field %q", e.Name, ErrMalformed, clip(field))
		}
		text, err := p.read("format/" + field)
		if err != nil {
			return perf.Raw{}, fmt.Errorf("%s: field %s: %w", e.Name, clip(field), err)
		}
		f, err := parseFormat(text)
		if err != nil {
			return perf.Raw{}, fmt.Errorf("%s/%s/format/%s: %w", devices, p.Name, field, err)
		}
		if !f.put(v, [...]*uint64{&e.Config, &e.Config1, &e.Config2}) {
			return perf.Raw{}, fmt.Errorf("%s: %w: %s has %d bits", e.Name, ErrMalformed, field, len(f.bits))
		}
	}
	return e, nil
}

func (p *PMU) read(file string) (string, error) {
	b, err := p.files.ReadFile(devices+"/"+p.Name+"/"+file, nil)
	if err != nil {
		return "", fmt.Errorf("read PMU: %w", err)
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}

// format is where a field's bits are, the lowest first.
type format struct {
	word int // 0: config, 1: config1, 2: config2
	bits []uint8
}

var words = []string{"config", "config1", "config2"}

// parseFormat reads "config:8-15,32-57".
func parseFormat(text string) (format, error) {
	word, ranges, _ := strings.Cut(text, ":")
	f, seen := format{word: slices.Index(words, word)}, uint64(0)
	bad := fmt.Errorf("%w format %q", ErrMalformed, clip(text))
	if f.word < 0 {
		return format{}, bad
	}
	for part := range strings.SplitSeq(ranges, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		low, err := strconv.ParseUint(from, 10, 6)
		high, err2 := strconv.ParseUint(to, 10, 6)
		if err != nil || err2 != nil || low > high {
			return format{}, bad
		}
		for bit := low; bit <= high; bit++ {
			if seen>>bit&1 != 0 {
				return format{}, bad
			}
			seen |= 1 << bit
			f.bits = append(f.bits, uint8(bit))
		}
	}
	return f, nil
}

// put sets the field's bits, unless the value has more.
func (f *format) put(v uint64, config [3]*uint64) bool {
	if len(f.bits) < 64 && v>>len(f.bits) != 0 {
		return false
	}
	for i, bit := range f.bits {
		*config[f.word] |= v >> i & 1 << bit
	}
	return true
}

// clip bounds what errors quote.
func clip(s string) string { return s[:min(len(s), 96)] }
