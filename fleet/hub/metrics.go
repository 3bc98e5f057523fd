package hub

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// collector tells Prometheus what the hub knows when it is asked. Nodes are counted and not named: names and figures of nodes take a token.
type collector struct {
	hub                                                                                            *Hub
	reading, waiting, committed, jobs, held, nodes, silent, batches, samples, lost, refuse, tidied *prometheus.Desc

	sheets, calculating, publishing *prometheus.Desc

	off, halted *prometheus.Desc

	// With a bucket only.
	bucketFailing, bucketWaiting, bucketCopied, bucketGone *prometheus.Desc
}

func newCollector(h *Hub) *collector {
	d := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("commensal_hub_"+name, help, nil, nil)
	}
	return &collector{
		hub:       h,
		reading:   d("reading", "1 while batches are taken and read; 0 when they are not, which /healthz explains."),
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
		tidied:    d("tidied_timestamp_seconds", "When the store's files were merged and old ones removed last, without an error; before that, when the hub began."),

		sheets:      d("specs_published_total", "Sheets of specs that were published."),
		calculating: d("specs_calculating_seconds_total", "Time that specs were calculated; no batch is taken meanwhile."),
		publishing:  d("specs_publishing_seconds_total", "Time that specs were being published, beside the taking of batches."),

		off:    d("fleet_off", "1 while the kill switch is on: no agent holds anything."),
		halted: d("rollout_halted", "1 while the roll-out that stands was ended, by somebody or by itself."),

		bucketFailing: d("bucket_failing", "1 while the bucket does not get what it should; status says why."),
		bucketWaiting: d("bucket_waiting_bytes", "Bytes of the store that the bucket should have and has not."),
		bucketCopied:  d("bucket_copied_bytes_total", "Bytes that were copied to the bucket."),
		bucketGone:    d("bucket_gone_files", "Files that somebody else deleted in the bucket and the folder has no more."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.reading, c.waiting, c.committed, c.jobs, c.held, c.nodes, c.silent, c.batches, c.samples, c.lost, c.refuse, c.tidied, c.sheets, c.calculating, c.publishing, c.off, c.halted, c.bucketFailing, c.bucketWaiting, c.bucketCopied, c.bucketGone} {
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
	if st := h.bucketStatus(); st != nil {
		failing := 0.0
		if st.Problem != "" {
			failing = 1
		}
		gauge(c.bucketFailing, failing)
		gauge(c.bucketWaiting, float64(st.WaitingBytes))
		count(c.bucketCopied, uint64(st.CopiedBytes)) //nolint:gosec // not negative
		gauge(c.bucketGone, float64(len(st.Gone)))
	}
	gauge(c.waiting, float64(h.store.Pending()))
	gauge(c.tidied, float64(h.wellTidied.Load()))
	message, _ := h.store.Committed()
	gauge(c.committed, float64(message))
	all, problem := h.totals(), h.wrong()
	h.mu.Lock()
	defer h.mu.Unlock()
	reading := 1.0
	if problem != "" {
		reading = 0
	}
	gauge(c.reading, reading)
	is := map[bool]float64{true: 1}
	gauge(c.off, is[h.switchedOff])
	gauge(c.halted, is[h.halted])
	waits := 0
	for _, j := range h.learner.Jobs {
		waits += heldBack(j)
	}
	gauge(c.jobs, float64(len(h.learner.Jobs)))
	gauge(c.held, float64(waits))
	gauge(c.nodes, float64(all.Heard))
	gauge(c.silent, float64(all.Silent))
	count(c.batches, all.Batches)
	count(c.samples, all.Samples)
	count(c.lost, all.Lost)
	count(c.refuse, all.Refused)
	count(c.sheets, h.published.sheets)
	ch <- prometheus.MustNewConstMetric(c.calculating, prometheus.CounterValue, h.published.calculating.Seconds())
	ch <- prometheus.MustNewConstMetric(c.publishing, prometheus.CounterValue, h.published.publishing.Seconds())
}

func (h *Hub) metrics() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector(h), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{Namespace: "commensal_hub"}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 2})
}
