package agent

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// oneSeries is a collector of one task's series.
type oneSeries string

func (s oneSeries) Describe(ch chan<- *prometheus.Desc) { ch <- describe().held }

func (s oneSeries) Collect(ch chan<- prometheus.Metric) {
	ch <- metric(describe().held, prometheus.GaugeValue, 1, []string{string(s)})
}

// No name makes a scrape fail.
func TestMetricsTakeAnyName(t *testing.T) {
	for _, name := range []string{"/batch/a", "/batch/be-\xff", "\x1b]0;x\a", ""} {
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(oneSeries(name))
		if got, err := r.Gather(); err != nil || len(got) != 1 {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
}
