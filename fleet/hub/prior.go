package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// Who hurts whom goes down to the nodes, as prior evidence (CPI² section 9). A node may lie, and must not convict a job on all the others: what is said
// of a pair is the least that comes out when one node is left out, whichever it is. So it is never more than what all the others say together, and
// three of them must. Nor has any node more weight than ten incidents.

const (
	priorCounted = 10            // incidents of one node, at most; of question interference, too
	priorAgain   = 6 * time.Hour // nodes let fade what they do not hear again
	priorTimeout = time.Minute
)

// priorsSQL asks for all pairs: since when, incidents that count, nodes.
const priorsSQL = `
WITH seen AS (SELECT victim_job, antagonist_job, platform, node, count(*) AS incidents, least(count(*), CAST(? AS BIGINT)) AS counted,
  avg(CASE WHEN state = 'recovered' THEN 1.0 ELSE 0.0 END) AS recovered, avg(value / threshold) AS degradation
FROM ` + latest + ` WHERE victim_job <> '' AND antagonist_job <> '' AND state <> 'observed' AND threshold > 0 AND value / threshold BETWEEN 0 AND 1000 AND opened >= CAST(? AS TIMESTAMP)
GROUP BY victim_job, antagonist_job, platform, node),
others AS (SELECT victim_job, antagonist_job, platform, incidents, degradation, count(*) OVER pair AS nodes,
  sum(counted) OVER pair - counted AS n, sum(counted * recovered) OVER pair - counted * recovered AS good
FROM seen WINDOW pair AS (PARTITION BY victim_job, antagonist_job, platform)),
shares AS (SELECT *, greatest(0.0, least(1.0, good / n)) AS share FROM others WHERE nodes >= CAST(? AS BIGINT))
SELECT victim_job, antagonist_job, platform, CAST(sum(incidents) AS BIGINT) AS incidents, count(*) AS nodes, round(avg(degradation), 3) AS degradation,
  round(1.96 * stddev_samp(degradation) / sqrt(count(*)), 3) AS error,
  round(min((share + 1.92 / n - 1.96 * sqrt((share * (1 - share) + 0.96 / n) / n)) / (1 + 3.84 / n)), 3) AS confidence
FROM shares GROUP BY victim_job, antagonist_job, platform ORDER BY incidents DESC, victim_job, antagonist_job, platform LIMIT 5000`

// PriorQuestion is what the hub asks its own store, every ten minutes.
func PriorQuestion(now time.Time) *Query {
	since := now.UTC().Add(-interferenceDays * 24 * time.Hour).Format(time.DateTime)
	return &Query{SQL: priorsSQL, Args: []any{priorCounted, since, wire.LeastPriorNodes}}
}

// saidPriors is what nodes were told last, by key.
type saidPriors struct {
	mu   sync.Mutex
	last map[string]said
}

type said struct {
	pairs string // as JSON
	at    time.Time
}

// priors returns what is to be said of each job and platform, by key. Of a job with more pairs than a sheet holds the most frequent are in it.
func (h *Hub) priors(ctx context.Context) (map[string]*wire.PriorSheet, error) {
	res, err := h.query(ctx, PriorQuestion(time.Now()))
	if err != nil {
		return nil, err
	}
	sheets := map[string]*wire.PriorSheet{}
	for _, row := range res.Rows {
		text := func(i int) string { s, _ := row[i].(string); return s }
		number := func(i int) float64 {
			if v, ok := row[i].(float64); ok {
				return v
			}
			return math.NaN()
		}
		job, platform, mean, off := text(0), text(2), number(5), number(6)
		p := model.Prior{
			Antagonist: text(1), Incidents: int(number(3)), Nodes: int(number(4)), Degradation: mean, Low: max(0, mean-off), High: mean + off, Confidence: number(7),
		}
		if !h.owns(job) { // of a batch that nobody had divided
			continue
		}
		key := wire.SpecKey(platform, job)
		sh := sheets[key]
		if sh == nil {
			sh = &wire.PriorSheet{Version: wire.PriorVersion, Platform: platform, Priors: model.Priors{Job: job}}
		}
		if p.Check() == nil && len(sh.Pairs) < wire.MaxPriors {
			sh.Pairs = append(sh.Pairs, p)
			sheets[key] = sh
		}
	}
	return sheets, nil
}

// sendPriors tells the nodes what changed, and once in a while what did not. What is not said any more is removed, so that who comes later does not hear it.
func (h *Hub) sendPriors(ctx context.Context) error {
	h.said.mu.Lock()
	defer h.said.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, priorTimeout)
	defer cancel()
	sheets, err := h.priors(ctx)
	if err != nil {
		return err
	}
	kv, err := h.t.js.KeyValue(ctx, wire.PriorBucket)
	if err != nil {
		return fmt.Errorf("hub: priors: %w", err)
	}
	for key, sh := range sheets {
		pairs, err := json.Marshal(sh.Pairs)
		if err != nil {
			return fmt.Errorf("hub: priors: %w", err)
		}
		now, was := time.Now(), h.said.last[key]
		if was.pairs == string(pairs) && now.Sub(was.at) < priorAgain {
			continue
		}
		sh.WallNsec = now.UnixNano()
		if err := putPriors(ctx, kv.Put, key, sh); err != nil {
			return fmt.Errorf("hub: priors of %s on %s: %w", sh.Job, sh.Platform, err)
		}
		h.said.last[key] = said{string(pairs), now}
	}
	keys, err := kv.ListKeys(ctx)
	if err != nil {
		return fmt.Errorf("hub: priors: %w", err)
	}
	for key := range keys.Keys() {
		if sheets[key] != nil {
			continue
		}
		var of wire.PriorSheet
		if _, err := lookUp(ctx, kv, key, &of); err != nil || h.owns(of.Job) { // one that cannot be read helps nobody
			delete(h.said.last, key)
			if err := kv.Purge(ctx, key); err != nil {
				return fmt.Errorf("hub: priors: %w", err)
			}
		}
	}
	return nil
}

// putPriors publishes a sheet, with fewer pairs where names make it longer than nodes take.
func putPriors(ctx context.Context, put func(ctx context.Context, key string, value []byte) (uint64, error), key string, sh *wire.PriorSheet) error {
	for {
		b, err := json.Marshal(sh)
		if err != nil {
			return err
		}
		if len(b) > wire.MaxPriorBytes {
			sh.Pairs = sh.Pairs[:len(sh.Pairs)/2]
			continue
		}
		_, err = put(ctx, key, b)
		return err
	}
}
