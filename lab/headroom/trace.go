package headroom

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxSteps bounds a trace: a year.
const maxSteps = 366 * perDay

// Traces is a recorded load: the nodes of one file.
type Traces struct {
	Name  string
	Nodes []*Node
}

// ReadTrace reads "time,task,figure" lines: seconds, a name, CPUs or GiB. Time 0 is some midnight. What falls into one step is
// averaged, and a step without a line is not known. Of a name "node/task" the part before the stroke is the machine; all tasks without one are of one
// machine. Each may use an eighth more than it ever did, since traces seldom say what it might.
func ReadTrace(name string, r io.Reader) (*Traces, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord, in.ReuseRecord, in.Comment = 3, true, '#'
	all := map[string]*sums{}
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		line, _ := in.FieldPos(0)
		at, err1 := strconv.ParseFloat(row[0], 64)
		figure, err2 := strconv.ParseFloat(row[2], 64)
		step := math.Floor(at / (float64(stepNsec) / 1e9))
		if line == 1 && err1 != nil && err2 != nil {
			continue // a header
		}
		if err1 != nil || err2 != nil || !(step >= 0 && step < maxSteps) || !(figure >= 0 && figure < 1e9) {
			return nil, fmt.Errorf("%s:%d: %q; expected seconds of at most a year, a task, and CPUs or GiB", name, line, strings.Join(row, ","))
		}
		if all[row[1]] == nil {
			all[strings.Clone(row[1])] = &sums{}
		}
		all[row[1]].add(int(step), figure)
	}
	nodes := map[string]*Node{}
	for _, task := range slices.Sorted(maps.Keys(all)) {
		of := ""
		if node, _, ok := strings.Cut(task, "/"); ok {
			of = node
		}
		if nodes[of] == nil {
			nodes[of] = &Node{Name: strings.TrimSuffix(name+"/"+of, "/")}
		}
		nodes[of].Tasks = append(nodes[of].Tasks, all[task].series(task))
	}
	t := &Traces{Name: name}
	for _, of := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[of]
		if n.steps() < 4*perDay {
			return nil, fmt.Errorf("%s: all tasks together are there for %d h; expected 96 at the least", n.Name, n.steps()/perHour)
		}
		t.Nodes = append(t.Nodes, n)
	}
	if len(t.Nodes) == 0 {
		return nil, fmt.Errorf("%s: nothing is there; expected 96 h at the least", name)
	}
	return t, nil
}

// sums is what was read of a task, by step.
type sums struct{ sum, count []float64 }

func (s *sums) add(step int, figure float64) {
	for len(s.sum) <= step {
		s.sum, s.count = append(s.sum, 0), append(s.count, 0)
	}
	s.sum[step] += figure
	s.count[step]++
}

func (s *sums) series(task string) Series {
	out := Series{Name: task, CPU: s.sum}
	for i := range s.sum {
		if s.sum[i] /= s.count[i]; s.count[i] == 0 {
			s.sum[i] = math.NaN()
		} else {
			out.Limit = max(out.Limit, s.sum[i]*1.125)
		}
	}
	return out
}
