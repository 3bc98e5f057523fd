package numa

// /sys/kernel/mm/mempolicy/weighted_interleave/nodeN: how many pages in a row the policy
// "weighted interleave" takes from a node (Linux 6.9).
//
// https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-kernel-mm-mempolicy-weighted-interleave
//
//	auto     true       (since 6.16: the weights follow the firmware's bandwidths)
//	node0    3          (1 to 255)
//	node1    1
//
// One set of weights for the machine. They steer new allocations of processes that chose
// this policy; changing them moves nothing. So they are read here, and never written: a
// share of one task's pages is the Mover's business.
//
// Linux 6.18 calls the file "auto" by the name "__auto_type": the attribute's name went
// through a macro of the same name.

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const weightedInterleaveDir = "/sys/kernel/mm/mempolicy/weighted_interleave"

// WeightedInterleave is the machine's interleave weights.
type WeightedInterleave struct {
	Weights Counts // pages in a row, 1 to 255
	HasAuto bool   // the kernel can derive the weights itself
	Auto    bool   // and does
}

// ReadWeightedInterleave reads the weights. ErrUnsupported: before Linux 6.9, or no NUMA.
func ReadWeightedInterleave(root hostfs.FS) (WeightedInterleave, error) {
	var w WeightedInterleave
	entries, err := root.ReadDir(weightedInterleaveDir)
	if err != nil {
		return w, wrapFile("read interleave weights", err, ErrUnsupported)
	}
	for _, e := range entries {
		path := weightedInterleaveDir + "/" + e.Name
		digits, isNode := strings.CutPrefix(e.Name, "node")
		isAuto := e.Name == "auto" || e.Name == "__auto_type"
		if !isNode && !isAuto {
			continue
		}
		data, err := root.ReadFile(path, nil)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the node went offline since the folder was listed
		}
		if err != nil {
			return w, wrapFile("read interleave weights", err, ErrUnsupported)
		}
		text := strings.TrimSuffix(string(data), "\n")
		if isAuto {
			w.HasAuto = true
			w.Auto, err = strconv.ParseBool(text)
		} else {
			err = w.add(digits, text)
		}
		if err != nil {
			return WeightedInterleave{}, fmt.Errorf("read %s: %w: %w", path, ErrMalformed, err)
		}
	}
	return w, nil
}

func (w *WeightedInterleave) add(digits, text string) error {
	node, err := strconv.ParseUint(digits, 10, 10)
	if err != nil {
		return err
	}
	weight, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return err
	}
	w.Weights = w.Weights.Add(int(node), weight)
	return nil
}
