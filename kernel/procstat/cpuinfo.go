package procstat

// /proc/cpuinfo: one paragraph a CPU. Its keys differ by architecture.
//
// https://docs.kernel.org/arch/x86/cpuinfo.html
//
//	processor	: 0
//	vendor_id	: AuthenticAMD
//	cpu family	: 25
//	model		: 1
//	model name	: AMD EPYC
//	stepping	: 1
//
// arm64 has no name, but numbers:
//
//	processor	: 0
//	CPU implementer	: 0x41
//	CPU architecture: 8
//	CPU variant	: 0x3
//	CPU part	: 0xd0c
//	CPU revision	: 1

import (
	"errors"
	"fmt"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const cpuinfoPath = "/proc/cpuinfo"

// ErrNoCPUType means that /proc/cpuinfo has no key that CPU types are told apart by here.
var ErrNoCPUType = errors.New("no CPU type in /proc/cpuinfo")

// CPUInfo is the first CPU's paragraph. Fields that it lacks are "". A host that mixes
// CPU types is known by its first one.
type CPUInfo struct {
	VendorID, Family, Model, Stepping    string // x86
	ModelName                            string // x86; blanks in a row are one
	Implementer, Part, Variant, Revision string // arm64
}

// Platform returns the name that CPU types are told apart by: the model name, or on
// arm64 the four numbers. ErrNoCPUType if there is neither. A hypervisor may hide the
// true model behind a general name ("AMD EPYC").
func (c CPUInfo) Platform() (string, error) {
	switch {
	case c.ModelName != "":
		return c.ModelName, nil
	case c.Implementer != "" && c.Part != "":
		return fmt.Sprintf("arm implementer %s part %s variant %s revision %s", c.Implementer, c.Part, c.Variant, c.Revision), nil
	}
	return "", ErrNoCPUType
}

// ReadCPUInfo reads the first CPU's paragraph.
func ReadCPUInfo(fs hostfs.FS) (CPUInfo, error) {
	data, err := fs.ReadFile(cpuinfoPath, nil)
	if err != nil {
		return CPUInfo{}, fmt.Errorf("read CPU type: %w", err)
	}
	return parseCPUInfo(string(data)), nil
}

// ReadPlatform returns CPUInfo.Platform of the host.
func ReadPlatform(fs hostfs.FS) (string, error) {
	info, err := ReadCPUInfo(fs)
	if err != nil {
		return "", err
	}
	return info.Platform()
}

func parseCPUInfo(text string) CPUInfo {
	var c CPUInfo
	first, _, _ := strings.Cut(strings.TrimLeft(text, "\n"), "\n\n")
	for line := range strings.Lines(first) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value = strings.Join(strings.Fields(value), " ")
		switch strings.TrimSpace(key) {
		case "vendor_id":
			c.VendorID = value
		case "cpu family":
			c.Family = value
		case "model":
			c.Model = value
		case "stepping":
			c.Stepping = value
		case "model name":
			c.ModelName = value
		case "CPU implementer":
			c.Implementer = value
		case "CPU part":
			c.Part = value
		case "CPU variant":
			c.Variant = value
		case "CPU revision":
			c.Revision = value
		}
	}
	return c
}
