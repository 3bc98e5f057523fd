// Package gpu asks NVIDIA's driver what the GPUs of this machine do.
//
// NVML is a shared library, and a static program loads none; so the command that comes with each driver is asked, which is NVML's
// own front (https://docs.nvidia.com/deploy/nvidia-smi/). It was not run on a machine with a GPU here: the format is as NVIDIA's manual
// and what people print of it have it.
//
//	$ nvidia-smi --query-gpu=uuid,utilization.gpu,memory.total,memory.free,mig.mode.current --format=csv,noheader,nounits
//	GPU-67a571b1-79ee-1016-8ea3-c1fff3f1c1d2, 37, 81920, 50212, Disabled
//	GPU-3e34e62f-d88e-f448-415e-be2cbf2c6178, [N/A], 81920, 81881, Enabled
//	$ nvidia-smi --query-compute-apps=pid,gpu_uuid,used_gpu_memory --format=csv,noheader,nounits
//	4711, GPU-67a571b1-79ee-1016-8ea3-c1fff3f1c1d2, 30100
//	4712, GPU-3e34e62f-d88e-f448-415e-be2cbf2c6178, [Insufficient Permissions]
//
// Memory is in MiB, utilisation the per cent of the last sampling period (1/6 s to 1 s) in which something ran. What a driver does not tell is a word
// in brackets. memory.free is asked for and not memory.used: since driver 510 that leaves out what the driver itself has.
package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// MaxGPUs is how many GPUs of a machine are told of: the largest servers have 16.
const MaxGPUs = 16

const (
	maxMiB  = 1 << 30 // more is no memory of a GPU
	maxUUID = 64
)

// Figure is a number that the driver may not tell.
type Figure struct {
	V     uint64
	Known bool
}

// GPU is what one says.
type GPU struct {
	UUID        string
	BusyPercent Figure // of the time in which something ran on it
	TotalBytes  Figure
	FreeBytes   Figure
	MIG         bool // it is divided into instances, each with memory of its own
}

// Process is what one process has on one GPU. PID is 0 where the driver does not tell it.
type Process struct {
	PID   int
	UUID  string
	Bytes Figure
}

// Reading is what all GPUs say, ordered by UUID, and all processes that compute on them.
type Reading struct {
	GPUs      []GPU
	Processes []Process
}

// ErrMalformed: the command printed something else than it documents.
var ErrMalformed = errors.New("expected what the manual of nvidia-smi says")

// Look says by device files whether NVIDIA's driver can be asked; where not, or where other GPUs are here beside, why nothing is known of some.
func Look(fs hostfs.FS) (nvidia bool, why string) {
	var found []string
	for _, dir := range []string{"/dev", "/dev/dri"} {
		list, err := fs.ReadDir(dir)
		if errors.Is(err, unix.ENOENT) && dir != "/dev" {
			continue
		}
		if err != nil {
			return false, fmt.Sprintf("not known: whether there are any cannot be seen: %v", err)
		}
		for _, e := range list {
			nv := strings.HasPrefix(e.Name, "nvidia") && !e.IsDir
			nvidia = nvidia || nv
			if nv || e.Name == "kfd" || strings.HasPrefix(e.Name, "renderD") {
				found = append(found, dir+"/"+e.Name)
			}
		}
	}
	slices.Sort(found)
	switch {
	case nvidia && slices.Contains(found, "/dev/kfd"):
		return true, "not read: /dev/kfd is here: figures are of NVIDIA's GPUs alone"
	case nvidia:
		return true, ""
	case loaded(fs):
		return false, "not read: NVIDIA's driver is loaded (/proc/driver/nvidia), and the agent sees no device file of it: docs/policies/headroom.md has what its unit needs"
	case len(found) > 0:
		return false, fmt.Sprintf("not read: %s is here, and NVIDIA's GPUs alone are: what others and their memory do is in no figure", found[0])
	}
	return false, "absent: no driver's device file is here (/dev/nvidia*, /dev/kfd, /dev/dri/renderD*)"
}

func loaded(fs hostfs.FS) bool {
	_, err := fs.ReadFile("/proc/driver/nvidia/version", nil)
	return err == nil
}

// rows cuts what the command printed into fields, so many a line.
func rows(text []byte, fields int) (list [][]string, err error) {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		row := strings.Split(line, ",")
		if len(row) != fields {
			return nil, fmt.Errorf("%w: %.100q has %d fields, not %d", ErrMalformed, line, len(row), fields)
		}
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		list = append(list, row)
	}
	return list, nil
}

// parseGPUs reads the first table; with mode it has that of MIG.
func parseGPUs(text []byte, mode bool) ([]GPU, error) {
	fields := 4
	if mode {
		fields = 5
	}
	list, err := rows(text, fields)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || len(list) > MaxGPUs {
		return nil, fmt.Errorf("%w: of %d GPUs; 1 to %d are told of", ErrMalformed, len(list), MaxGPUs)
	}
	var gpus []GPU
	for _, row := range list {
		g := GPU{UUID: row[0], MIG: mode && row[4] == "Enabled"}
		if !strings.HasPrefix(g.UUID, "GPU-") || len(g.UUID) > maxUUID { // one that is lost has a word in brackets there
			return nil, fmt.Errorf("%w: a GPU says %.100q where its UUID should be", ErrMalformed, g.UUID)
		}
		errs := [3]error{}
		g.BusyPercent, errs[0] = figure(row[1], 100, 1)
		g.TotalBytes, errs[1] = figure(row[2], maxMiB, 1<<20)
		g.FreeBytes, errs[2] = figure(row[3], maxMiB, 1<<20)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
		if g.FreeBytes.V > g.TotalBytes.V && g.TotalBytes.Known {
			return nil, fmt.Errorf("%w: %s has %s MiB free of %s", ErrMalformed, g.UUID, row[3], row[2])
		}
		gpus = append(gpus, g)
	}
	slices.SortFunc(gpus, func(a, b GPU) int { return strings.Compare(a.UUID, b.UUID) })
	for i := range gpus[1:] {
		if gpus[i].UUID == gpus[i+1].UUID {
			return nil, fmt.Errorf("%w: two GPUs are %s", ErrMalformed, gpus[i].UUID)
		}
	}
	return gpus, nil
}

// parseProcesses reads the second table, which may be empty.
func parseProcesses(text []byte) (list []Process, err error) {
	table, err := rows(text, 3)
	if err != nil {
		return nil, err
	}
	for _, row := range table {
		pid, err := figure(row[0], 1<<30, 1)
		if err != nil {
			return nil, err
		}
		bytes, err := figure(row[2], maxMiB, 1<<20)
		if err != nil {
			return nil, err
		}
		list = append(list, Process{int(pid.V), row[1], bytes})
	}
	return list, nil
}

// figure reads a whole number of a unit; a word in brackets, or N/A, is one that is not told.
func figure(text string, most, unit uint64) (Figure, error) {
	if text == "N/A" || strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		return Figure{}, nil
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil || v > most {
		return Figure{}, fmt.Errorf("%w: %.100q is no number up to %d", ErrMalformed, text, most)
	}
	return Figure{v * unit, true}, nil
}
