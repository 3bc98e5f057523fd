package wire

import (
	"fmt"
	"slices"
	"strings"
)

// KeyProtection of ControlBucket says of which jobs protection is off in the whole fleet.
const KeyProtection = "protection"

// Protection is the value of KeyProtection.
type Protection struct {
	Version int           `json:"version"` // of this document: 1
	Off     []Unprotected `json:"off"`     // by job; none: protection is on, as far as each node was not told otherwise itself
	// By, Why and WallNsec are of the last change.
	By       string `json:"by"`
	Why      string `json:"why"`
	WallNsec int64  `json:"wall_nsec"`
}

// Unprotected is a job whose protection is off, "" all jobs, and who turned it off.
type Unprotected struct {
	Job      string `json:"job"`
	By       string `json:"by"`
	Why      string `json:"why"`
	WallNsec int64  `json:"wall_nsec"`
}

// ProtectionVersion is of Protection.
const ProtectionVersion = 1

// MaxProtectionBytes bounds it: some hundred jobs.
const MaxProtectionBytes = 64 << 10

// Check says what is wrong with it; nil: nothing.
func (p *Protection) Check() error {
	if p.Version > ProtectionVersion {
		return fmt.Errorf("%w: %d, known here: %d", ErrNewer, p.Version, ProtectionVersion)
	}
	for i := range p.Off {
		if err := plain(p.Off[i].Job); err != nil {
			return err
		}
	}
	return nil
}

// Turn turns protection of a job, "" of all, on or off. To turn it on for all is to turn it on for each.
func (p *Protection) Turn(job string, on bool, by, why string, wallNsec int64) {
	p.Version, p.By, p.Why, p.WallNsec = ProtectionVersion, by, why, wallNsec
	p.Off = slices.DeleteFunc(p.Off, func(u Unprotected) bool { return u.Job == job || on && job == "" })
	if !on {
		p.Off = append(p.Off, Unprotected{Job: job, By: by, Why: why, WallNsec: wallNsec})
	}
	slices.SortFunc(p.Off, func(a, b Unprotected) int { return strings.Compare(a.Job, b.Job) })
}

// Jobs are those whose protection is off; of nil, none.
func (p *Protection) Jobs() []string {
	if p == nil {
		return nil
	}
	jobs := make([]string, len(p.Off))
	for i := range p.Off {
		jobs[i] = p.Off[i].Job
	}
	return jobs
}

// Says is who said what stands of a job, and why: "ann (an outage)". Of one that is not off that is the last change; of nil nothing.
func (p *Protection) Says(job string) string {
	if p == nil {
		return ""
	}
	for i := range p.Off {
		if u := &p.Off[i]; u.Job == job {
			return u.By + " (" + u.Why + ")"
		}
	}
	return p.By + " (" + p.Why + ")"
}
