package model

import "github.com/commensal-io/commensal/cpus"

// CPUSet is a set of logical CPUs or memory nodes.
type CPUSet = cpus.Set

// MaxCPUs is how many a CPUSet holds.
const MaxCPUs = cpus.Max

// FullSet returns {0 ... n-1}.
func FullSet(n int) CPUSet { return cpus.Full(n) }

// ParseCPUSet reads the kernel's list format; "" is the empty set.
func ParseCPUSet(text string) (CPUSet, error) { return cpus.Parse(text) }
