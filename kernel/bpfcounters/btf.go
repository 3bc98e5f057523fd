package bpfcounters

import (
	"fmt"
	"strconv"

	"github.com/cilium/ebpf/btf"
)

// memberOffset is the offset of a struct's member in bytes.
func memberOffset(spec *btf.Spec, structure, member string) (int16, error) {
	var s *btf.Struct
	if err := spec.TypeByName(structure, &s); err != nil {
		return 0, fmt.Errorf("kernel BTF: struct %s: %w", structure, err)
	}
	for _, m := range s.Members {
		if m.Name != member {
			continue
		}
		if offset := m.Offset.Bytes(); offset < 1<<15 {
			return int16(offset), nil
		}
		return 0, fmt.Errorf("kernel BTF: %s.%s is too far in for a load: %w", structure, member, errLayout)
	}
	return 0, fmt.Errorf("kernel BTF: struct %s has no %s: %w", structure, member, errLayout)
}

// symbol is a label for the i-th of several like jumps.
func symbol(name string, i int) string { return name + strconv.Itoa(i) }
