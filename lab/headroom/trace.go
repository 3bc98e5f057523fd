package headroom

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxSteps bounds a trace: a year.
const maxSteps = 366 * perDay

// ReadTrace reads "time,task,cpu" lines: seconds, a name, CPUs. Time 0 is some midnight. What falls into one step is
// averaged, a step without a line is not known, and all tasks are taken to be of one machine. Each may use an eighth more than it
// ever did, since traces seldom say what it might.
func ReadTrace(name string, r io.Reader) (*Node, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord, in.ReuseRecord, in.Comment = 3, true, '#'
	sums, counts := map[string][]float64{}, map[string][]float64{}
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
		cpu, err2 := strconv.ParseFloat(row[2], 64)
		step := math.Floor(at / (float64(stepNsec) / 1e9))
		if line == 1 && err1 != nil && err2 != nil {
			continue // a header
		}
		if err1 != nil || err2 != nil || !(step >= 0 && step < maxSteps) || !(cpu >= 0 && cpu < 1e5) {
			return nil, fmt.Errorf("%s:%d: %q; expected seconds of at most a year, a task and CPUs", name, line, strings.Join(row, ","))
		}
		task := strings.Clone(row[1])
		sum, count := sums[task], counts[task]
		for len(sum) <= int(step) {
			sum, count = append(sum, 0), append(count, 0)
		}
		sum[int(step)] += cpu
		count[int(step)]++
		sums[task], counts[task] = sum, count
	}
	n := &Node{Name: name}
	for task, sum := range sums {
		s := Series{Name: task, CPU: sum}
		for i := range sum {
			if sum[i] /= counts[task][i]; counts[task][i] == 0 {
				sum[i] = math.NaN()
			} else {
				s.Limit = max(s.Limit, sum[i]*1.125)
			}
		}
		n.Tasks = append(n.Tasks, s)
	}
	slices.SortFunc(n.Tasks, func(a, b Series) int { return strings.Compare(a.Name, b.Name) })
	if len(n.Tasks) == 0 || n.steps() < 4*perDay {
		return nil, fmt.Errorf("%s: all tasks together are there for %d h; expected 96 at the least", name, max(0, min(n.steps(), maxSteps))/perHour)
	}
	return n, nil
}
