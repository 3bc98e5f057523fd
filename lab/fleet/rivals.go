package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/snappy"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/lab/stage"
)

// Rival is what the same samples cost a database of time series: drawn from the same seed, the same minutes of the same nodes, a sample's
// values as one series each with the labels node, job, task and signal, a node's minute in one request of Prometheus's remote write,
// which both take. The program is a child process with its settings as they come; its CPU time and memory are its own, and who sends is in this process.
type Rival struct {
	Name     string  `json:"name"`
	Absent   string  `json:"absent,omitempty"` // why it was not measured
	Samples  int     `json:"samples"`          // windows of a task, each of so many values:
	Values   int     `json:"values_a_sample"`
	Taken    float64 `json:"taken_seconds"` // until each request was acknowledged
	Seconds  float64 `json:"seconds"`       // until all of it was in files
	CPU      float64 `json:"cpu_seconds"`   // of both sides, until these were merged
	Own      float64 `json:"own_cpu_seconds"`
	Wire     float64 `json:"wire_bytes_a_sample"`
	Stored   float64 `json:"stored_bytes_a_sample"`
	Resident float64 `json:"resident_mib"` // at most
}

// rival is a program that takes remote writes.
type rival struct {
	name, program, write, well string // paths of its HTTP interface
	args                       func(dir, addr string) []string
	// settle has all that was taken written, calls written, has it merged, and returns the folder that then holds it.
	settle func(ctx context.Context, url, dir string, written func()) (string, error)
}

const rivalTime = 10 * time.Minute // of one rival

var rivals = []rival{
	{"VictoriaMetrics", "victoria-metrics", "/api/v1/write", "/health", func(dir, addr string) []string {
		return []string{"-storageDataPath=" + dir, "-httpListenAddr=" + addr, "-retentionPeriod=1", "-loggerLevel=ERROR", "-search.latencyOffset=0s"}
	}, settleVictoria},
	{"Prometheus", "prometheus", "/api/v1/write", "/-/ready", func(dir, addr string) []string {
		return []string{
			"--config.file=" + filepath.Join(dir, "none.yml"), "--storage.tsdb.path=" + dir, "--web.listen-address=" + addr, "--web.enable-remote-write-receiver", "--web.enable-admin-api", "--log.level=error",
		}
	}, settlePrometheus},
}

// compete measures each rival that is installed.
func (c *Cost) compete(ctx context.Context, dir string, seed uint64, quick bool, log func(format string, args ...any)) error {
	for i := range rivals {
		r := &rivals[i]
		got := Rival{Name: r.name}
		if program, err := exec.LookPath(r.program); err != nil {
			got.Absent = fmt.Sprintf("%s is not installed; `scripts/setup rivals` does", r.program)
		} else {
			log("the same samples to %s", r.name)
			if err := r.measure(ctx, &got, program, filepath.Join(dir, r.program), seed, ingestLoad(quick)); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
		c.Rivals = append(c.Rivals, got)
	}
	return nil
}

// measure runs one from beginning to end.
func (r *rival) measure(ctx context.Context, got *Rival, program, dir string, seed uint64, load minutesOf) (err error) {
	ctx, cancel := context.WithTimeout(ctx, rivalTime)
	defer cancel()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // within a folder that goes
	if err := os.WriteFile(filepath.Join(dir, "none.yml"), nil, 0o600); err != nil {
		return err
	}
	addr, err := stage.FreeAddress()
	if err != nil {
		return err
	}
	p, err := spawn(ctx, program, dir, r.args(dir, addr)...)
	if err != nil {
		return err
	}
	defer func() { err = p.end(err) }() // its files go as well
	base := "http://" + addr
	if err := until(ctx, 500*time.Millisecond, 30*time.Second, func() (bool, error) {
		_, err := call(ctx, http.MethodGet, base+r.well)
		return err == nil, nil
	}); err != nil {
		return fmt.Errorf("it does not answer: %w", err)
	}
	return r.play(ctx, got, base, dir, p.Process.Pid, seed, load)
}

// play sends the load to the running program.
func (r *rival) play(ctx context.Context, got *Rival, base, dir string, pid int, seed uint64, load minutesOf) error {
	begin, mine := time.Now(), cpuSeconds()
	before, err := usageOf(pid)
	if err != nil {
		return err
	}
	sent, err := load.write(ctx, seed, base+r.write)
	if err != nil {
		return err
	}
	got.Taken = time.Since(begin).Seconds()
	files, err := r.settle(ctx, base, dir, func() { got.Seconds = time.Since(begin).Seconds() })
	if err != nil {
		return err
	}
	after, err := usageOf(pid)
	if err != nil {
		return err
	}
	got.Samples, got.Values, got.Resident, got.Own = load.samples(), loadValues, after.peak, after.cpu-before.cpu
	got.CPU = got.Own + cpuSeconds() - mine
	n := float64(got.Samples)
	bytes, err := sizeOf(files)
	got.Wire, got.Stored = float64(sent)/n, float64(bytes)/n
	if err != nil {
		return err
	}
	// What is not there would be cheap.
	have, err := count(ctx, base)
	if want := n * loadValues; err == nil && have != want {
		err = fmt.Errorf("it has %.0f values of %.0f", have, want)
	}
	return err
}

func settleVictoria(ctx context.Context, base, dir string, written func()) (string, error) {
	if _, err := call(ctx, http.MethodGet, base+"/internal/force_flush"); err != nil {
		return "", err
	}
	written()
	if _, err := call(ctx, http.MethodGet, base+"/internal/force_merge"); err != nil {
		return "", err
	}
	last := int64(-1) // a merge begins after the answer, and is over when nothing grows or goes any more
	return dir, until(ctx, 500*time.Millisecond, time.Minute, func() (bool, error) {
		page, err := call(ctx, http.MethodGet, base+"/metrics")
		if err != nil {
			return false, err
		}
		size, err := sizeOf(dir)
		same := size == last && strings.Contains(page, "\nvm_active_force_merges 0")
		last = size
		return same, err
	})
}

// settlePrometheus has what is in memory written as a block, as it is every two hours.
func settlePrometheus(ctx context.Context, base, dir string, written func()) (string, error) {
	answer, err := call(ctx, http.MethodPost, base+"/api/v1/admin/tsdb/snapshot")
	if err != nil {
		return "", err
	}
	written()
	var said struct{ Data struct{ Name string } }
	if err := json.Unmarshal([]byte(answer), &said); err != nil || said.Data.Name == "" {
		return "", fmt.Errorf("a snapshot's answer is %.200q (%w)", answer, err)
	}
	return filepath.Join(dir, "snapshots", said.Data.Name), nil
}

// write sends the load by remote write, and returns how many bytes that were.
func (l *minutesOf) write(ctx context.Context, seed uint64, url string) (int64, error) {
	bytesOf := make([]int64, loadSenders)
	err := l.draw(ctx, seed, func(ctx context.Context, k int, next func() *wire.Batch) error {
		client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		for b := next(); b != nil; b = next() {
			body := snappy.Encode(nil, remoteWrite(b))
			bytesOf[k] += int64(len(body))
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Encoding", "snappy")
			req.Header.Set("Content-Type", "application/x-protobuf")
			req.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
			if _, _, err := answer(client, req); err != nil {
				return err
			}
		}
		return nil
	})
	sum := int64(0)
	for _, n := range bytesOf {
		sum += n
	}
	return sum, err
}

// remoteWrite is a batch as prometheus.WriteRequest: timeseries (1) of labels (1) and samples (2).
func remoteWrite(b *wire.Batch) (out []byte) {
	s := &b.Samples
	rows := make([][]int, len(b.Tasks))
	for i, t := range s.Task {
		rows[t] = append(rows[t], i)
	}
	names, columns := []string{"cpu"}, [][]float32{s.CPU}
	for k := range s.Signals {
		names, columns = append(names, s.Signals[k].Source.String()), append(columns, s.Signals[k].Values)
	}
	var series, part []byte
	for t := range b.Tasks {
		for k, column := range columns {
			series = series[:0]
			for _, label := range [...][2]string{{"__name__", "commensal"}, {"job", b.Tasks[t].Job}, {"node", b.Spool}, {"signal", names[k]}, {"task", b.Tasks[t].Path}} { // ordered
				part = protowire.AppendString(protowire.AppendTag(part[:0], 1, protowire.BytesType), label[0])
				part = protowire.AppendString(protowire.AppendTag(part, 2, protowire.BytesType), label[1])
				series = protowire.AppendBytes(protowire.AppendTag(series, 1, protowire.BytesType), part)
			}
			for _, i := range rows[t] {
				part = protowire.AppendFixed64(protowire.AppendTag(part[:0], 1, protowire.Fixed64Type), math.Float64bits(float64(column[i])))
				part = protowire.AppendVarint(protowire.AppendTag(part, 2, protowire.VarintType), uint64(s.WallMsec[i])) //nolint:gosec // since 1970
				series = protowire.AppendBytes(protowire.AppendTag(series, 2, protowire.BytesType), part)
			}
			out = protowire.AppendBytes(protowire.AppendTag(out, 1, protowire.BytesType), series)
		}
	}
	return out
}

// count asks how many values there are.
func count(ctx context.Context, base string) (float64, error) {
	text, err := call(ctx, http.MethodGet, base+"/api/v1/query?nocache=1&query="+url.QueryEscape("sum(count_over_time(commensal[2h]))"))
	if err != nil {
		return 0, err
	}
	var said struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil || len(said.Data.Result) != 1 {
		return 0, fmt.Errorf("a count's answer is %.200q (%w)", text, err)
	}
	return strconv.ParseFloat(fmt.Sprint(said.Data.Result[0].Value[1]), 64)
}

func (c *Cost) writeRivals(w io.Writer) {
	for i := range c.Rivals {
		r := &c.Rivals[i]
		if r.Absent != "" {
			fmt.Fprintf(w, "%s\tnot measured: %s\t-\n", r.Name, r.Absent)
			continue
		}
		fmt.Fprintf(w, "samples a second into %s's files (of %d values each; %.1f CPU-seconds, its own %.1f; acknowledged %.0f a second)\t%.0f\t-\n", r.Name, r.Values, r.CPU, r.Own, float64(r.Samples)/r.Taken, float64(r.Samples)/r.Seconds)
		fmt.Fprintf(w, "bytes a sample on the way to %s, and in its files; MiB resident at most\t%.1f, %.1f; %.0f\t-\n", r.Name, r.Wire, r.Stored, r.Resident)
		fmt.Fprintf(w, "%s by the hub: CPU, time, bytes a stored sample\t%.2f, %.2f, %.2f\t-\n", r.Name, r.CPU/c.Ingest.CPU, r.Seconds/c.Ingest.Seconds, r.Stored/c.Ingest.Stored)
	}
}
