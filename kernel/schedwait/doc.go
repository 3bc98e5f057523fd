// Package schedwait measures who makes whom wait for a CPU: of each watched task how often, how long and how unevenly its
// threads wait before they run, and for how much of that which other task, kernel thread or interrupt had the CPU.
//
// BPF programs at the scheduler's tracepoints keep, for each CPU, a short history of who ran on it. A thread waits from
// when it may run (it was woken, or was put off the CPU and could have gone on) until it runs; what of the CPU's history
// lies in between is charged, to the nanosecond, to whoever ran meanwhile, and the charges of a wait add up to it. Kernel
// threads, soft interrupts, time that a hypervisor gave to another guest and the task's own quota are parties of their
// own; the task's own threads are charged under its own name. bpf/schedwait.bpf.c tells the rules where they are applied.
//
// It needs Linux 5.18 or later (the state of the thread that leaves, as an argument of sched_switch) with BTF and
// CAP_BPF and CAP_PERFMON. Nothing is pinned: when the process ends the kernel detaches everything. Before Linux 6.6 the
// time under a quota is read from a clock that slows down with the CPU's frequency.
package schedwait
