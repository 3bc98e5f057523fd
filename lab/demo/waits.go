package demo

import (
	"cmp"
	"slices"

	"github.com/commensal-io/commensal/lab/trace"
	"github.com/commensal-io/commensal/model"
)

// Waits is who had the CPU while the victim waited for it, in one stretch of time or several;
// times are a second of them.
type Waits struct {
	Seconds float64                   `json:"seconds"`    // in which it was measured; 0: it was not
	Foreign float64                   `json:"foreign_ms"` // in all, whoever had the CPU but itself
	Tasks   map[model.TaskNum]float64 `json:"tasks_ms"`
	// Outside is what no rule of the agent covers, without the demo's own client and agent: other
	// programs, the kernel's threads and the hypervisor. Of the time of unmanaged programs, which is one
	// figure, as much is the client's and the agent's as of their CPU time.
	Outside float64 `json:"outside_ms"`
	Own     float64 `json:"client_and_agent_ms"`
	SoftIRQ float64 `json:"softirq_ms"` // soft interrupts: mostly the victim's own packets
	// Steal and Kernel are parts of Outside. CPU is what other programs used, CPU-sec/sec.
	Steal  float64 `json:"steal_ms"`
	Kernel float64 `json:"kernel_ms"`
	CPU    float64 `json:"outside_cpu"`
	// Who are the programs that were seen outside, the longest first: names without shares, for
	// each stands for all that ran in one window.
	Who []string `json:"who,omitempty"`
}

// share is a part of all waiting for others.
func (w *Waits) share(ms float64) float64 {
	if w.Foreign <= 0 {
		return 0
	}
	return ms / w.Foreign
}

// OutsideShare is what is outside of all rules, as a share of the victim's waiting for others.
func (w *Waits) OutsideShare() float64 { return w.share(w.Outside) }

// mostNames bounds how many programs outside are named.
const mostNames = 3

// waits sums up the windows that in says. own is the CPU that client and agent use, CPU-sec/sec, and
// ours are their names.
func waits(t *trace.Trace, victim model.TaskNum, own float64, ours []string, in func(w *trace.Window) bool) Waits {
	out := Waits{Tasks: map[model.TaskNum]float64{}}
	seen, length := map[string]float64{}, 0.0
	for i := range t.Windows {
		w := &t.Windows[i]
		if !in(w) {
			continue
		}
		length += w.Length
		out.CPU += max(0, w.Unmanaged.V-own) * w.Length
		k := slices.IndexFunc(w.Waiting, func(x model.Waiting) bool { return x.Num == victim })
		if k < 0 {
			continue
		}
		out.Seconds += w.Length
		outside := 0.0 // share of the unmanaged that is not ours
		if w.Unmanaged.V > 0 {
			outside = max(0, 1-own/w.Unmanaged.V)
		}
		for _, x := range w.Waiting[k].Shares {
			if !x.Foreign(victim) {
				continue
			}
			ms := float64(x.Nsec) / 1e6
			out.Foreign += ms
			switch x.Party {
			case model.WaitTask:
				out.Tasks[x.Task] += ms
			case model.WaitUnmanaged:
				out.Outside += ms * outside
				out.Own += ms * (1 - outside)
				if x.Process != "" && !slices.Contains(ours, x.Process) {
					seen[x.Process] += ms * outside
				}
			case model.WaitKernel:
				out.Kernel += ms
				out.Outside += ms
			case model.WaitSteal:
				out.Steal += ms
				out.Outside += ms
			case model.WaitSoftIRQ:
				out.SoftIRQ += ms
			}
		}
	}
	if length > 0 {
		out.CPU /= length
	}
	out.perSecond()
	for name := range seen {
		out.Who = append(out.Who, name)
	}
	slices.SortFunc(out.Who, func(a, b string) int { return cmp.Or(cmp.Compare(seen[b], seen[a]), cmp.Compare(a, b)) })
	out.Who = out.Who[:min(mostNames, len(out.Who))]
	return out
}

func (w *Waits) perSecond() {
	if w.Seconds <= 0 {
		return
	}
	for _, v := range []*float64{&w.Foreign, &w.Outside, &w.Own, &w.SoftIRQ, &w.Steal, &w.Kernel} {
		*v /= w.Seconds
	}
	for n := range w.Tasks {
		w.Tasks[n] /= w.Seconds
	}
}
