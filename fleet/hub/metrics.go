package hub

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// collector tells Prometheus what the hub knows when it is asked. Nodes are counted and not named: names and figures of nodes take a token.
type collector struct {
	hub                                                                                    *Hub
	reading, waiting, committed, jobs, held, nodes, silent, batches, samples, lost, refuse *prometheus.Desc
}

// silentAfter is how long a node may be unheard until it counts as silent.
const silentAfter = 3 * time.Minute

func newCollector(h *Hub) *collector {
	d := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("commensal_hub_"+name, help, nil, nil)
	}
	return &collector{
		hub:       h,
		reading:   d("reading", "1 while batches are read; 0 when they are not, which /healthz explains."),
		waiting:   d("waiting_rows", "Rows that wait for a commit."),
		committed: d("committed_message", "The stream's last message that is in the store."),
		jobs:      d("jobs", "Jobs on platforms that the learner knows."),
		held:      d("specs_held_back", "Specs that jumped and wait for an operator."),
		nodes:     d("nodes", "Nodes that sent something since the hub was started."),
		silent:    d("nodes_silent", "Of these, nodes that were not heard for three minutes."),
		batches:   d("batches_total", "Batches that were taken."),
		samples:   d("samples_total", "Samples that were taken."),
		lost:      d("lost_batches_total", "Batches that nodes had to drop before they were sent."),
		refuse:    d("refused_batches_total", "Batches that were no good."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.reading, c.waiting, c.committed, c.jobs, c.held, c.nodes, c.silent, c.batches, c.samples, c.lost, c.refuse} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	count := func(d *prometheus.Desc, v uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	h := c.hub
	gauge(c.waiting, float64(h.store.Pending()))
	message, _ := h.store.Committed()
	gauge(c.committed, float64(message))
	h.mu.Lock()
	defer h.mu.Unlock()
	reading := 1.0
	if h.problem != "" {
		reading = 0
	}
	gauge(c.reading, reading)
	held, silent, heard := 0, 0, 0
	for _, j := range h.learner.Jobs {
		for i := range j.Signals {
			if j.Signals[i].Held != nil {
				held++
			}
		}
	}
	var batches, samples, lost, refused uint64
	for _, n := range h.nodes {
		if !n.Seen.IsZero() {
			heard++
			if time.Since(n.Seen) > silentAfter {
				silent++
			}
		}
		batches, samples, lost, refused = batches+n.Batches, samples+n.Samples, lost+n.Lost, refused+n.Refused
	}
	gauge(c.jobs, float64(len(h.learner.Jobs)))
	gauge(c.held, float64(held))
	gauge(c.nodes, float64(heard))
	gauge(c.silent, float64(silent))
	count(c.batches, batches)
	count(c.samples, samples)
	count(c.lost, lost)
	count(c.refuse, refused)
}

func (h *Hub) metrics() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector(h), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{Namespace: "commensal_hub"}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 2})
}
