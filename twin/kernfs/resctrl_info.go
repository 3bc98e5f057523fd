package kernfs

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/resctrl"
)

// addInfo fills info.
func (r *resctrlFS) addInfo() {
	info := r.k.addDir(r.root.dir, "info")
	r.k.addFile(info, "last_cmd_status", func(buf []byte) ([]byte, error) {
		if len(r.status) == 0 {
			return append(buf, "ok\n"...), nil
		}
		return append(buf, r.status...), nil
	}, nil)
	for _, s := range r.schemata {
		dir := r.k.addDir(info, string(s.name))
		r.k.addText(dir, "num_closids", fmt.Sprintln(s.closids))
		if s.isMB() {
			r.k.addText(dir, "min_bandwidth", fmt.Sprintln(minBandwidth))
			r.k.addText(dir, "bandwidth_gran", fmt.Sprintln(bandwidthGran))
			r.k.addText(dir, "delay_linear", "1\n")
			r.k.addText(dir, "thread_throttle_mode", "max\n")
			continue
		}
		r.k.addText(dir, "cbm_mask", fmt.Sprintf("%x\n", s.full()))
		r.k.addText(dir, "min_cbm_bits", "1\n")
		r.k.addText(dir, "shareable_bits", fmt.Sprintf("%x\n", r.shareable(s)))
		r.k.addText(dir, "sparse_masks", "0\n")
		r.k.addFile(dir, "bit_usage", func(buf []byte) ([]byte, error) {
			r.sync()
			return r.showBitUsage(s, buf), nil
		}, nil)
	}
	dir := r.k.addDir(info, "L3_MON")
	r.k.addText(dir, "num_rmids", fmt.Sprintln(r.opt.RMIDs))
	r.k.addText(dir, "mon_features", strings.Join(eventNames[:], "\n")+"\n")
	r.k.addFile(dir, "max_threshold_occupancy", func(buf []byte) ([]byte, error) {
		return append(strconv.AppendUint(buf, r.threshold, 10), '\n'), nil
	}, func(data []byte) error {
		v, err := strconv.ParseUint(strings.TrimSpace(string(data)), 0, 32)
		if err != nil || v > uint64(r.cfg.LLCBytes) {
			return unix.EINVAL
		}
		r.threshold = v / monScale * monScale
		return nil
	})
}

// showBitUsage appends the use of each way, the highest first.
func (r *resctrlFS) showBitUsage(s *resctrlSchema, buf []byte) []byte {
	first := true
	for d := range r.domains(s) {
		if !first {
			buf = append(buf, ';')
		}
		first = false
		var shared, exclusive uint32
		for _, g := range r.groups {
			if g.mode == resctrl.Exclusive {
				exclusive |= s.ctrl[d][g.closid]
			} else {
				shared |= s.ctrl[d][g.closid]
			}
		}
		buf = append(strconv.AppendInt(buf, int64(s.id(d)), 10), '=')
		for w := s.ways - 1; w >= 0; w-- {
			hardware, software := r.shareable(s)>>w&1 == 1, shared>>w&1 == 1
			letter := byte('0')
			switch {
			case hardware && software:
				letter = 'X'
			case hardware:
				letter = 'H'
			case software:
				letter = 'S'
			case exclusive>>w&1 == 1:
				letter = 'E'
			}
			buf = append(buf, letter)
		}
	}
	return append(buf, '\n')
}
