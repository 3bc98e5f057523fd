package scenario

import (
	"fmt"
	"math"
	"strings"

	"github.com/commensal-io/commensal/internal/strictyaml"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// written says whether a behaviour is given at all.
func (b *Behaviour) written() bool {
	return b.Program != "" || b.CPI != nil || b.APKI != nil || b.Curve != nil || b.Apart != nil || b.Overlap != nil || b.Prefetched != nil || b.WriteShare != nil
}

// behave stores what a task's instructions are like.
func (p *Plan) behave(at string, b *Behaviour, c *machine.TaskConfig) error {
	if b.Program != "" {
		prog, ok := program.Find(b.Program)
		if !ok {
			hint := "expected one of " + strings.Join(program.Names(), ", ")
			if near := strictyaml.Nearest(b.Program, program.Names()); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			return p.doc.Errorf(at+".program", "is %q; %s", short(b.Program), hint)
		}
		prog.Apply(c)
	} else {
		if b.CPI == nil {
			return p.doc.Errorf(at+".cpi", "is missing; expected a program, or cpi and the other values of one")
		}
		// A task of which nothing more is said computes in registers.
		c.Overlap = 1
		c.Curve = machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}}
	}
	for _, f := range []struct {
		from *float64
		to   *float64
	}{{b.CPI, &c.CPI}, {b.APKI, &c.APKI}, {b.Overlap, &c.Overlap}, {b.Prefetched, &c.Prefetched}, {b.WriteShare, &c.WriteShare}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if b.Apart != nil {
		c.Apart = *b.Apart
	}
	if b.Curve == nil {
		return nil
	}
	c.Curve = machine.MissCurve{StepBytes: float64(b.Curve.Step), MPKI: b.Curve.MPKI}
	return p.checkCurve(at+".curve", b.Curve)
}

const maxCurve = 64

func (p *Plan) checkCurve(at string, c *Curve) error {
	switch {
	case !(c.Step >= 1024 && c.Step <= 1<<40):
		return p.doc.Errorf(at+".step", "is %g bytes; expected at least 1KiB", float64(c.Step))
	case len(c.MPKI) == 0 || len(c.MPKI) > maxCurve:
		return p.doc.Errorf(at+".mpki", "has %d points; expected 1 to %d", len(c.MPKI), maxCurve)
	}
	last := 1000.0
	for i, v := range c.MPKI {
		if math.IsNaN(v) || v < 0 || v > last {
			return p.doc.Errorf(fmt.Sprintf("%s.mpki[%d]", at, i), "is %g; expected 0 to %g: more cache never means more misses", v, last)
		}
		last = v
	}
	return nil
}
