package model

import (
	"fmt"
	"math"
)

// What is normal of a job may differ by what its tasks were given: a copy that may use one CPU has another normal than one that may use
// sixteen. The configuration says which size a task has, by a name of its own or by the limit of its CPU.

// SizeByCPULimit stands in a configuration for SizeOfLimit.
const SizeByCPULimit = "cpu-limit"

// maxSizeName is the longest name of a size, in bytes.
const maxSizeName = 63

// SizeName says what is wrong with the name of a size; nil: nothing. It is part of keys, columns and addresses of pages. "" is none.
func SizeName(name string) error {
	ok := len(name) <= maxSizeName
	for i := range len(name) {
		c := name[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || (c == '-' || c == '.') && i > 0)
	}
	if !ok {
		return fmt.Errorf("size %.70q; expected at most %d of a-z, 0-9, - and ., the first a letter or digit", name, maxSizeName)
	}
	return nil
}

// SizeOfLimit names the size of a task that may use so many CPU-sec/sec at most: by the least power of two that is not less, from an eighth to
// 1024, so that a limit that is nudged does not make another size. +Inf is no limit.
func SizeOfLimit(cpus float64) string {
	if math.IsInf(cpus, 1) || math.IsNaN(cpus) {
		return "cpu-unlimited"
	}
	return fmt.Sprintf("cpu-%g", math.Exp2(min(10, max(-3, math.Ceil(math.Log2(cpus))))))
}
