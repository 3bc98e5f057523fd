package bpfcounters

// The two programs, as instructions, so that building needs no compiler for BPF. Both are offered to the kernel under
// "Dual BSD/GPL", for these two helpers are for GPL-compatible programs only.
//
//	on_switch  tp_btf/sched_switch (bool preempt, struct task_struct *prev, struct task_struct *next)
//	           returns at once when prev and next are in the same cgroup; else charges
//	flush      raw_tracepoint, never attached: run on a CPU by BPF_PROG_TEST_RUN with BPF_F_TEST_RUN_ON_CPU, it charges
//
// charge, in words:
//
//	read the first event and its times, and the other events, on this CPU  (bpf_perf_event_read_value, bpf_perf_event_read)
//	delta = what was read − what this CPU's state has; state = what was read
//	for each ancestor of the current task's cgroup, from the root: (current is prev until the switch is done)
//	    slot = slots[its id]; if there is one, counts[slot] on this CPU += delta
//
// A counter that cannot be read charges nothing and leaves the state as it is: the next that can is charged with the
// stretch as a whole. One that fell (it was opened anew) becomes the state and charges nothing.
//
// The same is done in C by the kernel's tools/perf/util/bpf_skel/bperf_cgroup.bpf.c, at the software event
// cgroup-switches, which takes one more descriptor a CPU and a sample each time; its depth and number of cgroups are
// constants of the build.

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

const (
	// maxDepth bounds how many ancestors are looked at, as the verifier wants a bound: Kubernetes has 4 to 6.
	maxDepth = 32
	// On the stack, from the frame pointer down: the read value (24 bytes), a key of 8, then the deltas.
	stackValue = -24
	stackKey   = -32
	stackDelta = -40 // of word 0; word i is 8·i below
	// currentCPU is BPF_F_CURRENT_CPU.
	currentCPU = 1<<32 - 1
	// bpf_perf_event_value: counter, enabled, running.
	valueCounter, valueEnabled, valueRunning = stackValue, stackValue + 8, stackValue + 16
)

// words are the u64s of a record in the maps: enabled, running, then a value an event.
func words(events int) int { return 2 + events }

// offsets are where the kernel at hand keeps what on_switch follows: task → css_set → cgroup of the v2 hierarchy.
type offsets struct{ taskCgroups, cssSetDefault int16 }

// resolveOffsets asks the kernel's own BTF.
func resolveOffsets() (offsets, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return offsets{}, err
	}
	task, err := memberOffset(spec, "task_struct", "cgroups")
	if err != nil {
		return offsets{}, err
	}
	set, err := memberOffset(spec, "css_set", "dfl_cgrp")
	return offsets{taskCgroups: task, cssSetDefault: set}, err
}

// objects are the maps that the programs use.
type objects struct {
	events               []*ebpf.Map // one an event: cilium/ebpf makes such an array no longer than there are CPUs
	state, slots, counts *ebpf.Map
}

// switchProgram is on_switch.
func switchProgram(o offsets, m objects) *ebpf.ProgramSpec {
	prologue := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 8, asm.DWord),  // prev
		asm.LoadMem(asm.R3, asm.R1, 16, asm.DWord), // next
		asm.LoadMem(asm.R2, asm.R2, o.taskCgroups, asm.DWord),
		asm.LoadMem(asm.R3, asm.R3, o.taskCgroups, asm.DWord),
		asm.JEq.Reg(asm.R2, asm.R3, "out"),
		asm.LoadMem(asm.R2, asm.R2, o.cssSetDefault, asm.DWord),
		asm.LoadMem(asm.R3, asm.R3, o.cssSetDefault, asm.DWord),
		asm.JEq.Reg(asm.R2, asm.R3, "out"), // they differ in v1 hierarchies only
	}
	return &ebpf.ProgramSpec{
		Name: "commensal_sched", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_switch",
		License: "Dual BSD/GPL", Instructions: append(prologue, charge(m)...),
	}
}

// flushProgram is flush.
func flushProgram(m objects) *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{Name: "commensal_flush", Type: ebpf.RawTracepoint, License: "Dual BSD/GPL", Instructions: charge(m)}
}

// charge reads the CPU's events and adds what they grew to the current task's cgroup and its ancestors.
// It keeps the CPU's state in R7 and the level in R8.
func charge(m objects) asm.Instructions {
	code := asm.Instructions{
		asm.StoreImm(asm.RFP, stackKey, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, m.state.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stackKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Reg(asm.R7, asm.R0),
	}
	code = append(code, readEvents(m)...)
	code = append(code, takeDeltas(words(len(m.events)))...)
	return append(code, addToAncestors(m)...)
}

// readEvents puts what the CPU's events read onto the stack, all before any of the state changes.
func readEvents(m objects) (code asm.Instructions) {
	for event, array := range m.events {
		code = append(code,
			asm.LoadMapPtr(asm.R1, array.FD()),
			asm.LoadImm(asm.R2, currentCPU, asm.DWord),
		)
		if event > 0 { // its times are the first's: a group is on the counters as a whole
			code = append(code,
				asm.FnPerfEventRead.Call(),
				asm.JGT.Imm(asm.R0, -4096, "out"), // an errno
				asm.StoreMem(asm.RFP, deltaAt(2+event), asm.R0, asm.DWord),
			)
			continue
		}
		code = append(code,
			asm.Mov.Reg(asm.R3, asm.RFP),
			asm.Add.Imm(asm.R3, stackValue),
			asm.Mov.Imm(asm.R4, 24),
			asm.FnPerfEventReadValue.Call(),
			asm.JNE.Imm(asm.R0, 0, "out"),
		)
		for word, from := range []int16{valueEnabled, valueRunning, valueCounter} {
			code = append(code,
				asm.LoadMem(asm.R1, asm.RFP, from, asm.DWord),
				asm.StoreMem(asm.RFP, deltaAt(word), asm.R1, asm.DWord),
			)
		}
	}
	return code
}

// takeDeltas makes what was read the state, and leaves what it grew by on the stack; R5 is 1 when a number fell.
func takeDeltas(n int) asm.Instructions {
	code := asm.Instructions{asm.Mov.Imm(asm.R5, 0)}
	for word := range n {
		same := symbol("rose", word)
		code = append(code,
			asm.LoadMem(asm.R1, asm.RFP, deltaAt(word), asm.DWord),
			asm.LoadMem(asm.R2, asm.R7, int16(8*word), asm.DWord),
			asm.StoreMem(asm.R7, int16(8*word), asm.R1, asm.DWord),
			asm.JGE.Reg(asm.R1, asm.R2, same),
			asm.Mov.Imm(asm.R5, 1),
			asm.Sub.Reg(asm.R1, asm.R2).WithSymbol(same),
			asm.StoreMem(asm.RFP, deltaAt(word), asm.R1, asm.DWord),
		)
	}
	return append(code, asm.JNE.Imm(asm.R5, 0, "out"))
}

// addToAncestors adds the deltas to the counts of each ancestor that is counted.
func addToAncestors(m objects) asm.Instructions {
	code := asm.Instructions{
		asm.LoadMem(asm.R1, asm.RFP, deltaAt(0), asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "out"), // the events are disabled: nothing to charge
		asm.Mov.Imm(asm.R8, 0),
		asm.Mov.Reg(asm.R1, asm.R8).WithSymbol("level"),
		asm.FnGetCurrentAncestorCgroupId.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"), // deeper than the task's cgroup
		asm.StoreMem(asm.RFP, stackKey, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, m.slots.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stackKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "next"), // nobody counts this one
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.StoreMem(asm.RFP, stackKey, asm.R1, asm.Word),
		asm.LoadMapPtr(asm.R1, m.counts.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stackKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "next"),
	}
	for word := words(len(m.events)) - 1; word >= 0; word-- { // times last: a reader that comes between sees counts without their time, not time without counts
		code = append(code,
			asm.LoadMem(asm.R1, asm.R0, int16(8*word), asm.DWord),
			asm.LoadMem(asm.R2, asm.RFP, deltaAt(word), asm.DWord),
			asm.Add.Reg(asm.R1, asm.R2),
			asm.StoreMem(asm.R0, int16(8*word), asm.R1, asm.DWord),
		)
	}
	return append(code,
		asm.Add.Imm(asm.R8, 1).WithSymbol("next"),
		asm.JLT.Imm(asm.R8, maxDepth, "level"),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	)
}

// deltaAt is where on the stack a word of the record is kept.
func deltaAt(word int) int16 { return int16(stackDelta - 8*word) }
