package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/commensal-io/commensal/fleet/wire"
)

// Observe first: a policy that a roll-out has enforce must have run as `observe`, with the same parameters, on as many of the nodes for a time. What
// enforces is read off the overlay's text: a key `mode` with the value `enforce`, wherever it stands. The hub knows no policy and no node's file: so it
// cannot tell a policy that enforces there already, and who only changes the parameters of one leaves its mode out. Rejected: to let the
// hub go on to enforce by itself after the time, because what nodes observed is worth something only when somebody looks at it.

const (
	observeFor   = time.Hour // where the configuration does not say
	observeShare = 0.9       // of the nodes that a change takes: some are always just away
)

// overlaid is what is said in an overlay.
type overlaid struct {
	text     string
	enforces []string // where it says `mode: enforce`: "hard_cap", or "" at the top
	observed string   // the same, with observe in place of enforce
	same     string   // that, however it is written
}

// readOverlay reads an overlay. It is YAML with keys; which they are the nodes know.
func readOverlay(text string) (*overlaid, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, fmt.Errorf("the overlay is no YAML: %w", err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("the overlay is no configuration: expected keys of policies and limits, as `hard_cap: {mode: observe}`")
	}
	o := &overlaid{text: text, observed: text}
	o.observe(doc.Content[0], nil)
	var v any
	if err := doc.Decode(&v); err != nil { // as keys that are there twice
		return nil, fmt.Errorf("the overlay is no YAML: %w", err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("the overlay is no configuration: %w", err)
	}
	o.same = string(b)
	if len(o.enforces) > 0 {
		b, err := yaml.Marshal(&doc)
		if err != nil {
			return nil, fmt.Errorf("the overlay: %w", err)
		}
		o.observed = string(b)
	}
	return o, nil
}

// observe puts observe in place of enforce, and notes where that was.
func (o *overlaid) observe(n *yaml.Node, at []string) {
	if n.Kind != yaml.MappingNode {
		for _, c := range n.Content {
			o.observe(c, at)
		}
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		said := value
		if said.Kind == yaml.AliasNode {
			said = said.Alias
		}
		if key.Value == "mode" && said.Kind == yaml.ScalarNode && said.Value == "enforce" {
			o.enforces = append(o.enforces, strings.Join(at, "."))
			n.Content[i+1] = &yaml.Node{Kind: yaml.ScalarNode, Value: "observe", LineComment: value.LineComment}
			continue
		}
		o.observe(value, append(at[:len(at):len(at)], key.Value))
	}
}

// seen is what was observed of a change that may enforce now.
type seen struct {
	same    bool   // it is the change that is there, though it may observe there what it now enforces
	percent int    // of the nodes on which it was observed for long enough
	already int    // of the nodes that have just this in force: it may go on there, and on fewer
	lacks   string // why it was not observed on more
}

// seenOf looks whether the change that is there is the same, and for how long it was observed.
func (h *Hub) seenOf(now *wire.Rollout, o *overlaid) seen {
	was, err := readOverlay(now.Overlay)
	if now.ID == "" || now.Halted != "" || err != nil || was.same != o.same {
		return seen{lacks: "it is not there as `observe`"}
	}
	s := seen{same: true, percent: now.Observed, lacks: fmt.Sprintf("it was observed on %d %%", now.Observed)}
	if len(was.enforces) > 0 {
		if slices.Equal(was.enforces, o.enforces) {
			s.already = now.Percent
		}
		return s
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.countRollout(now)
	rest := h.cfg.ObserveFor.Seconds() - st.ObservedSeconds
	switch {
	case st.InForce == 0:
		s.lacks = fmt.Sprintf("it is observed on %d %%, where no node has said yet that it has it", now.Percent)
	case !st.enough():
		s.lacks = fmt.Sprintf("it is observed on %d %%, and of the %d nodes there only %d say that they have it", now.Percent, st.Meant, st.InForce)
	case rest > 0:
		s.lacks = fmt.Sprintf("it is observed on %d %%, and has to be for another %s", now.Percent, time.Duration(math.Ceil(rest))*time.Second)
	default:
		s.percent = max(s.percent, now.Percent)
		s.lacks = fmt.Sprintf("it was observed on %d %%", s.percent)
	}
	return s
}

// mayEnforce says why a change must be observed first; nil: it need not be.
func (h *Hub) mayEnforce(o *overlaid, percent int, s *seen) error {
	if len(o.enforces) == 0 || percent <= max(s.percent, s.already) {
		return nil
	}
	var names []string
	for _, at := range o.enforces {
		names = append(names, strings.TrimPrefix(at+".mode", "."))
	}
	return fmt.Errorf("%w: this enforces (%s) on %d %% of the nodes what these must observe first, for %s; %s. Roll it out with --observe (observe: true) to %d %% or more, look at what it would do, and then without; --skip-observe (skip_observe: true) does it now",
		errUnknown, strings.Join(names, ", "), percent, h.cfg.ObserveFor, s.lacks, percent)
}
