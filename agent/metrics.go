package agent

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/policy/headroom"
	"github.com/commensal-io/commensal/slo"
)

// counts is what the loop counts about itself. Only the loop touches it.
type counts struct {
	windows   uint64
	cycles    uint64
	looks     uint64
	cycleSum  time.Duration
	failures  uint64
	lost      uint64 // turns that the record lacks
	decisions map[decided]uint64
}

// decided is a kind of decision and who took it.
type decided struct {
	by   string
	kind model.DecisionKind
}

func (c *counts) decision(d *model.Decision) {
	if c.decisions == nil {
		c.decisions = map[decided]uint64{}
	}
	c.decisions[decided{d.By(), d.Kind}]++
}

func (c *counts) cycle(d time.Duration, mark model.WindowMark) {
	c.cycles++
	c.cycleSum += d
	if mark&model.WindowEnd != 0 {
		c.windows++
	}
}

// The descriptions of the series; base units, names as Prometheus asks.
type descriptions struct {
	up, warnings, windows, cycles, looks, cycleSeconds, failures, lost, delays, decisions                                            *prometheus.Desc
	cpu, signal, threshold, held, slo, target, met                                                                                   *prometheus.Desc
	free, freeTerm, freeTask, freeCold, freeAt, freeMemory, freeMemoryTerm, freeMemoryTask, freeMemoryCold, hub, waiting, sent, gone *prometheus.Desc
	freeGPU, freeGPUTerm, freeGPUTask, freeGPUBusy                                                                                   *prometheus.Desc
	occupancy, moved                                                                                                                 *prometheus.Desc
	idle, cold, taken, given, back                                                                                                   *prometheus.Desc
}

func describe() descriptions {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("commensal_"+name, help, labels, nil)
	}
	return descriptions{
		up:             d("enforcing", "1 when the policy may write, 0 when it only observes or is off.", "policy"),
		warnings:       d("warnings", "Warnings that `commensal status` shows."),
		windows:        d("windows_total", "Sampling windows that were judged."),
		cycles:         d("agent_cycles_total", "Turns of the agent's loop."),
		looks:          d("agent_memory_looks_total", "Readings of memory between windows: it was low or fell fast, or programs waited for it."),
		cycleSeconds:   d("agent_cycle_seconds_total", "Wall time spent in those turns."),
		failures:       d("agent_failures_total", "Turns in which the machine could not be read or the record not be written."),
		lost:           d("record_lost_ticks_total", "Turns that are not in the record, since its disk was full, too slow or gone."),
		delays:         d("delay_failures_total", "Readings in which the scheduler delay could not be read: without it no slowdown is known."),
		decisions:      d("decisions_total", "Decisions by who took them, a policy or detection, operators and the kernel, and by kind.", "policy", "kind"),
		cpu:            d("task_cpu_cores", "CPU usage in the last window, CPU-seconds per second.", "task", "job", "class"),
		signal:         d("task_signal_ratio", "The task's signal in the last window.", "task", "job", "source"),
		threshold:      d("task_signal_threshold_ratio", "The outlier threshold of that signal.", "task", "job", "source"),
		held:           d("task_cap_cores", "The cap in force, CPU-seconds per second. A raised quota is none.", "task"),
		slo:            d("slo_latency_seconds", "Latency that a probe of the service saw.", "job", "quantile"),
		target:         d("slo_target_seconds", "Latency that the job promises, for the quantile.", "job", "quantile"),
		free:           d("headroom_cores", "What best-effort work may use from now through a horizon, CPU-seconds per second.", "horizon"),
		freeTerm:       d("headroom_term_cores", "What of the machine it may not use, and for whom that is: lc, system, others, reserve.", "horizon", "term"),
		freeTask:       d("headroom_task_cores", "What a task is forecast to use at most.", "task", "job", "horizon"),
		freeCold:       d("headroom_cold_tasks", "Tasks that are too little known and count with all that they may use.", "horizon"),
		freeAt:         d("headroom_timestamp_seconds", "When the forecast was made, by the wall clock."),
		freeMemory:     d("headroom_memory_bytes", "Memory that best-effort work may have from now through a horizon.", "horizon"),
		freeMemoryTerm: d("headroom_memory_term_bytes", "What of the machine's memory it may not have, and for whom that is: lc, system, others, reserve.", "horizon", "term"),
		freeMemoryTask: d("headroom_memory_task_bytes", "Working set that a task is forecast to have at most.", "task", "job", "horizon"),
		freeMemoryCold: d("headroom_memory_cold_tasks", "Tasks whose memory is too little known and counts with all that they may have.", "horizon"),
		freeGPU:        d("headroom_gpu_memory_bytes", "Memory of a GPU that best-effort work may have from now through a horizon.", "gpu", "horizon"),
		freeGPUTerm:    d("headroom_gpu_memory_term_bytes", "What of a GPU's memory it may not have, and for whom that is: lc, others, reserve.", "gpu", "horizon", "term"),
		freeGPUTask:    d("headroom_gpu_memory_task_bytes", "Memory of a GPU that a task has now.", "gpu", "task", "job", "class"),
		freeGPUBusy:    d("headroom_gpu_busy_ratio", "Share of a GPU's time in which something is forecast to run on it, best-effort work included.", "gpu", "horizon"),
		hub:            d("fleet_connected", "1 while the fleet's hub can be reached; no series where this node is of no fleet."),
		waiting:        d("fleet_waiting_batches", "Batches on disk that the hub did not take yet."),
		sent:           d("fleet_sent_batches_total", "Batches that the hub acknowledged."),
		gone:           d("fleet_lost_batches_total", "Batches that had to give way: the hub was away for too long, or the disk hung."),
		occupancy:      d("task_llc_occupancy_bytes", "Bytes of the domain's last-level cache that the task's lines fill (resctrl).", "task", "job", "domain"),
		moved:          d("task_memory_bytes_per_second", "Bytes a second that the task's threads in the domain moved to and from memory in the last window: total, or local, the part to the domain's own (resctrl).", "task", "job", "domain", "which"),
		met:            d("slo_state", "1 for the state in which the job stands to its target; grey also where there is no valid figure.", "job", "state"),
		idle:           d("idle_memory_bytes", "Memory of all tasks of a class that was not used for so many seconds or longer, as last read of each.", "class", "pages", "age_seconds"),
		cold:           d("task_idle_memory_bytes", "Memory of the task that is old enough to be given back.", "task", "job", "pages"),
		taken:          d("task_taken_bytes_total", "Idle pages that were taken of the task, by their size before.", "task", "job"),
		given:          d("task_given_back_bytes_total", "Memory that came free by that: less where compressed copies stay (zswap, zram).", "task", "job"),
		back:           d("task_came_back_bytes_total", "What of those pages came back, beyond the usual, while it was watched.", "task", "job"),
	}
}

// collector asks the loop when Prometheus does; between scrapes it costs nothing.
type collector struct {
	agent *Agent
	desc  descriptions
}

// Describe implements prometheus.Collector. It is called while the agent starts: it must
// not ask the loop, which does not run yet.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	d := &c.desc
	for _, desc := range []*prometheus.Desc{
		d.up, d.warnings, d.windows, d.cycles, d.looks, d.cycleSeconds, d.failures, d.lost, d.delays, d.decisions, d.cpu, d.signal, d.threshold, d.held, d.slo, d.target, d.met,
		d.free, d.freeTerm, d.freeTask, d.freeCold, d.freeAt, d.freeMemory, d.freeMemoryTerm, d.freeMemoryTask, d.freeMemoryCold, d.freeGPU, d.freeGPUTerm, d.freeGPUTask, d.freeGPUBusy, d.hub, d.waiting, d.sent, d.gone,
		d.occupancy, d.moved, d.idle, d.cold, d.taken, d.given, d.back,
	} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var st *Status
	var free *Headroom
	var n counts
	delays := uint64(0)
	decisions := map[decided]uint64{}
	for k := model.DecideNothing + 1; k < model.NumDecisionKinds; k++ {
		for _, by := range k.TakenBy() {
			decisions[decided{by, k}] = 0 // a series exists from the start
		}
	}
	if err := c.agent.ask(ctx, func() {
		st, n, free = c.agent.status(), c.agent.core.counts, c.agent.headroom()
		maps.Copy(decisions, n.decisions)
		if h, ok := c.agent.core.Host.(*linux.Host); ok {
			delays = h.DelayFailures()
		}
	}); err != nil {
		ch <- prometheus.NewInvalidMetric(c.desc.up, err)
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- metric(d, prometheus.GaugeValue, v, labels)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- metric(d, prometheus.CounterValue, v, labels)
	}
	for _, p := range st.Policies {
		enforcing := 0.0
		if p.Now == model.ModeEnforce {
			enforcing = 1
		}
		gauge(c.desc.up, enforcing, p.Name)
	}
	gauge(c.desc.warnings, float64(len(st.Warnings)))
	count(c.desc.windows, float64(n.windows))
	count(c.desc.cycles, float64(n.cycles))
	count(c.desc.looks, float64(n.looks))
	count(c.desc.cycleSeconds, n.cycleSum.Seconds())
	count(c.desc.failures, float64(n.failures))
	count(c.desc.lost, float64(n.lost))
	count(c.desc.delays, float64(delays))
	for d, v := range decisions {
		count(c.desc.decisions, float64(v), d.by, d.kind.String())
	}
	c.tasks(st, gauge)
	c.idle(st, gauge, count)
	c.headroom(free, gauge)
	c.memory(&free.Memory, gauge)
	c.gpus(free, gauge)
	if f := st.Fleet; f != nil {
		up := 0.0
		if f.Connected {
			up = 1
		}
		gauge(c.desc.hub, up)
		gauge(c.desc.waiting, float64(f.Waiting))
		count(c.desc.sent, float64(f.Sent))
		count(c.desc.gone, float64(f.Lost))
	}
}

// idle tells of memory that lies idle; where nobody reads ages it has no series.
func (c *collector) idle(st *Status, gauge, count func(d *prometheus.Desc, v float64, labels ...string)) {
	type series struct {
		class model.Class
		pages model.PageKind
	}
	sums := map[series]*[model.NumAgeEdges]float64{}
	for i := range st.Tasks {
		t := &st.Tasks[i]
		if t.Idle == nil {
			continue
		}
		for _, pages := range [...]model.PageKind{model.AnonPages, model.FilePages} {
			of := series{t.Class, pages}
			if sums[of] == nil {
				sums[of] = &[model.NumAgeEdges]float64{}
			}
			for k, bytes := range t.Idle.Ages.Of(pages) {
				sums[of][k] += float64(bytes)
			}
		}
		gauge(c.desc.cold, float64(t.Idle.Anon), t.Path, t.Job, model.AnonPages.String())
		gauge(c.desc.cold, float64(t.Idle.File), t.Path, t.Job, model.FilePages.String())
		count(c.desc.taken, t.Idle.Reclaimed, t.Path, t.Job)
		count(c.desc.given, t.Idle.Given, t.Path, t.Job)
		count(c.desc.back, t.Idle.CameBack, t.Path, t.Job)
	}
	for of, sum := range sums {
		for k, edge := range model.AgeEdges {
			gauge(c.desc.idle, sum[k], of.class.String(), of.pages.String(), strconv.FormatInt(edge/1e9, 10))
		}
	}
}

// headroom tells of the last forecast; none has no series.
func (c *collector) headroom(h *Headroom, gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	if h.WallNsec != 0 {
		gauge(c.desc.freeAt, float64(h.WallNsec)/1e9)
	}
	for i := range h.Horizons {
		o := &h.Horizons[i]
		gauge(c.desc.free, o.BE, o.Name)
		gauge(c.desc.freeCold, float64(o.Cold), o.Name)
		gauge(c.desc.freeTerm, o.LC, o.Name, "lc")
		gauge(c.desc.freeTerm, o.System, o.Name, "system")
		gauge(c.desc.freeTerm, o.Others, o.Name, "others")
		gauge(c.desc.freeTerm, o.Reserve, o.Name, "reserve")
		for j := range h.Tasks {
			gauge(c.desc.freeTask, h.Tasks[j].Terms[i].CPU, h.Tasks[j].Path, h.Tasks[j].Job, o.Name)
		}
	}
}

// memory tells of the last forecast of memory; none has no series.
func (c *collector) memory(r *headroom.MemoryReport, gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	for i := range r.Horizons {
		o := &r.Horizons[i]
		gauge(c.desc.freeMemory, o.BE, o.Name)
		gauge(c.desc.freeMemoryCold, float64(o.Cold), o.Name)
		gauge(c.desc.freeMemoryTerm, o.LC, o.Name, "lc")
		gauge(c.desc.freeMemoryTerm, o.System, o.Name, "system")
		gauge(c.desc.freeMemoryTerm, o.Others, o.Name, "others")
		gauge(c.desc.freeMemoryTerm, o.Reserve, o.Name, "reserve")
		for j := range r.Tasks {
			gauge(c.desc.freeMemoryTask, r.Tasks[j].Terms[i].Bytes, r.Tasks[j].Path, r.Tasks[j].Job, o.Name)
		}
	}
}

// gpus tells of the last forecast of GPUs; where none was read it has no series.
func (c *collector) gpus(h *Headroom, gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	for i := range h.GPU.GPUs {
		g := &h.GPU.GPUs[i]
		for j := range g.Memory.Horizons {
			o := &g.Memory.Horizons[j]
			gauge(c.desc.freeGPU, o.BE, g.UUID, o.Name)
			gauge(c.desc.freeGPUTerm, o.LC, g.UUID, o.Name, "lc")
			gauge(c.desc.freeGPUTerm, o.Others, g.UUID, o.Name, "others")
			gauge(c.desc.freeGPUTerm, o.Reserve, g.UUID, o.Name, "reserve")
		}
		for j := range g.Users {
			u := &g.Users[j]
			gauge(c.desc.freeGPUTask, u.Bytes, g.UUID, u.Path, u.Job, u.Class.String())
		}
		if g.Busy.Last.Outcome != model.OK {
			continue
		}
		for j := range g.Busy.Terms {
			gauge(c.desc.freeGPUBusy, g.Busy.Terms[j].CPU, g.UUID, h.Horizons[j].Name)
		}
	}
}

// metric makes a series whose labels Prometheus takes, whatever a cgroup or a job is called:
// one that it does not take would fail every scrape.
func metric(d *prometheus.Desc, t prometheus.ValueType, v float64, labels []string) prometheus.Metric {
	for i := range labels {
		labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
	}
	return prometheus.MustNewConstMetric(d, t, v, labels...)
}

func (c *collector) tasks(st *Status, gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	for i := range st.Tasks {
		t := &st.Tasks[i]
		// What is missing has no series: absent is not zero.
		if t.CPU.Outcome == model.OK {
			gauge(c.desc.cpu, t.CPU.V, t.Path, t.Job, t.Class.String())
		}
		if t.Signal.Outcome == model.OK {
			gauge(c.desc.signal, t.Signal.V, t.Path, t.Job, t.Source.String())
		}
		if t.Threshold > 0 {
			gauge(c.desc.threshold, t.Threshold, t.Path, t.Job, t.Source.String())
		}
		for _, d := range t.Domains {
			domain := strconv.Itoa(int(d.Domain))
			if d.Occupancy.Outcome == model.OK {
				gauge(c.desc.occupancy, d.Occupancy.V, t.Path, t.Job, domain)
			}
			if d.Total.Outcome == model.OK {
				gauge(c.desc.moved, d.Total.V, t.Path, t.Job, domain, "total")
			}
			if d.Local.Outcome == model.OK {
				gauge(c.desc.moved, d.Local.V, t.Path, t.Job, domain, "local")
			}
		}
	}
	for i := range st.Held {
		if h := &st.Held[i]; h.Cap > 0 {
			gauge(c.desc.held, h.Cap, h.Path)
		}
	}
	for i := range st.SLO {
		s := &st.SLO[i]
		if s.Target > 0 {
			gauge(c.desc.target, s.Target, s.Job, strconv.FormatFloat(s.Quantile, 'g', -1, 64))
			for colour := slo.Grey; colour <= slo.Red; colour++ {
				is := 0.0
				if colour == s.Colour {
					is = 1
				}
				gauge(c.desc.met, is, s.Job, colour.String())
			}
		}
		if usual := []float64{0.5, 0.99, 0.999}; s.Figure != nil && !slices.Contains(usual, s.Quantile) {
			gauge(c.desc.slo, *s.Figure, s.Job, strconv.FormatFloat(s.Quantile, 'g', -1, 64))
		}
		if s.State == slo.StateOK {
			gauge(c.desc.slo, s.P50, s.Job, "0.5")
			gauge(c.desc.slo, s.P99, s.Job, "0.99")
			if s.P999 > 0 {
				gauge(c.desc.slo, s.P999, s.Job, "0.999")
			}
		}
	}
}

// processMetrics are the agent's own CPU time, memory and descriptors.
func processMetrics() prometheus.Collector {
	return collectors.NewProcessCollector(collectors.ProcessCollectorOpts{Namespace: "commensal"})
}

// metricsHandler serves /metrics, with what other collectors have to say.
func (a *Agent) metricsHandler(others ...prometheus.Collector) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(append(others, &collector{agent: a, desc: describe()})...)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 2}))
	return mux
}
