package record

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
)

// Column is one counter of the samples in a segment, in the order in which frames have them.
type Column struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
}

// maxColumns is how many counters one word of outcomes has room for, at three bits each.
const maxColumns = 21

const (
	_ = uint(maxColumns - model.NumTaskCounters)
	_ = uint(maxColumns - model.NumNodeCounters)
	_ = uint(maxColumns - model.NumDomainCounters)
)

// columnsOf lists counters as a header has them.
func columnsOf(rows []model.CounterRow) []Column {
	var list []Column
	for i := range rows {
		list = append(list, Column{rows[i].Name, rows[i].Unit})
	}
	return list
}

// Before version 3 headers listed no counters: there were these.
var (
	oldNodeColumns = []string{"busy", "steal", "stall_cpu"}
	oldTaskColumns = []string{"usage", "throttled", "run", "delay", "cycles", "ref_cycles", "instructions", "llc_misses"}
)

// places says of each column which counter of ours it is; -1: none, it is passed over. Those
// of our counters that have no column stay Unavailable.
func places(columns []Column, old []string, rows []model.CounterRow) ([]int, error) {
	if old != nil {
		columns = nil
		for _, name := range old {
			columns = append(columns, Column{Name: name})
		}
	}
	if len(columns) > maxColumns {
		return nil, fmt.Errorf("%w: %d counters, and a sample has at most %d", ErrCorrupt, len(columns), maxColumns)
	}
	at := map[string]int{}
	for i := range rows {
		at[rows[i].Name] = i
	}
	list := make([]int, len(columns))
	for i, c := range columns {
		place, ok := at[c.Name]
		if !ok {
			place = -1
		}
		delete(at, c.Name) // a counter that is listed twice would be read twice
		list[i] = place
	}
	return list, nil
}

// newDecoder returns the coder of a segment with a header.
func newDecoder(h *Header) (c coder, err error) {
	oldNode, oldTask := oldNodeColumns, oldTaskColumns
	if h.Version >= 3 {
		oldNode, oldTask = nil, nil
	}
	if c.nodeAt, err = places(h.NodeCounters, oldNode, model.NodeCounters()); err != nil {
		return c, err
	}
	if c.domainAt, err = places(h.DomainCounters, nil, model.DomainCounters()); err != nil {
		return c, err
	}
	if c.pulsed = 2; h.Version >= 5 {
		c.pulsed = 3
	}
	c.taskAt, err = places(h.TaskCounters, oldTask, model.TaskCounters())
	return c, err
}
