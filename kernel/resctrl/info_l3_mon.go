package resctrl

// info/L3_MON/*: what can be monitored.
//
// https://docs.kernel.org/filesystems/resctrl.html ("L3_MON")
//
//	num_rmids                32
//	mon_features             llc_occupancy
//	                         mbm_total_bytes
//	                         mbm_local_bytes
//	max_threshold_occupancy  524288      bytes: an RMID in limbo is free below it
//	mbm_assign_mode          [default]   (since 6.18) or mbm_event (AMD ABMC): counters
//	                         mbm_event   are handed to events, and some have none
//	num_mbm_cntrs            0=32;1=32   (since 6.18) per domain
//	available_mbm_cntrs      0=30;1=30
//
// num_rmids counts the root group's too. Every group takes one.

import (
	"fmt"
	"slices"
	"strings"
)

const (
	l3MonDir = "L3_MON"

	// The events of mon_features, and files of mon_data.
	eventOccupancy = "llc_occupancy"
	eventTotal     = "mbm_total_bytes"
	eventLocal     = "mbm_local_bytes"
)

// Monitoring is info/L3_MON.
type Monitoring struct {
	NumRMIDs int
	// Occupancy, Total and Local say which events there are.
	Occupancy, Total, Local bool
	OtherFeatures           []string // that the driver does not read
	// MaxThresholdOccupancyBytes is the occupancy below which a freed RMID leaves limbo.
	MaxThresholdOccupancyBytes uint64
	// AssignMode is "mbm_event" where bandwidth is counted only for events that a
	// counter is assigned to; "default" or "" otherwise.
	AssignMode string
	// FreeCounters are the counters not assigned, per domain; nil without such a mode.
	FreeCounters []DomainCount
}

// DomainCount is a number per domain.
type DomainCount struct {
	Domain int
	Count  uint64
}

func (r *infoReader) monitoring() *Monitoring {
	m := &Monitoring{NumRMIDs: int(r.number("num_rmids", 10))}
	for _, f := range strings.Fields(r.text("mon_features")) {
		switch f {
		case eventOccupancy:
			m.Occupancy = true
		case eventTotal:
			m.Total = true
		case eventLocal:
			m.Local = true
		default:
			m.OtherFeatures = append(m.OtherFeatures, f)
		}
	}
	m.MaxThresholdOccupancyBytes = r.optionalNumber("max_threshold_occupancy", 10, 0)
	m.AssignMode = parseChosen(r.optional("mbm_assign_mode"))
	if text := r.optional("available_mbm_cntrs"); text != "" && r.err == nil {
		m.FreeCounters, r.err = parseDomainCounts(text)
	}
	if r.err == nil && m.NumRMIDs < 1 {
		r.err = fmt.Errorf("%s: %w: num_rmids %d", r.dir, ErrMalformed, m.NumRMIDs)
	}
	return m
}

// parseChosen returns the word in brackets, "" when none is.
func parseChosen(text string) string {
	words := strings.Fields(text)
	i := slices.IndexFunc(words, func(w string) bool {
		return len(w) > 2 && w[0] == '[' && w[len(w)-1] == ']'
	})
	if i < 0 {
		return ""
	}
	return words[i][1 : len(words[i])-1]
}

// parseDomainCounts reads "0=32;1=32".
func parseDomainCounts(text string) ([]DomainCount, error) {
	var list []DomainCount
	err := eachDomain(strings.TrimSpace(text), func(id int, value string) error {
		v, err := parseNumber(value, 10)
		list = append(list, DomainCount{Domain: id, Count: v})
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
