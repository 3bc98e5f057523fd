package agent

import "net/http"

// Door is what an agent answers on its socket and on its metrics port.
type Door struct{ Socket, Metrics http.Handler }

// Door returns the answers of a core whose loop is the caller's own, as on a simulated machine:
// between two turns, and before a handler returns. An agent that is no process has no metrics of one.
func (c *Core) Door(version string) Door {
	a := &Agent{cfg: c.cfg, version: version, core: c}
	return Door{a.socketHandler(), a.metricsHandler()}
}
