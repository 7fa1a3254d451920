package dialect

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

// quotas bound how many messages of each lane a claim takes.
type quotas struct {
	of     map[int64]int
	usedTo map[int64]time.Time // of the rates of lanes
	now    time.Time
}

// UsedLanesSQL counts the held messages of lanes, and the crashed ones that could be claimed.
const UsedLanesSQL = `SELECT x.lane, sum(x.held) AS held, sum(x.crashed) AS crashed FROM (
  SELECT h.lane, 1 AS held, 0 AS crashed FROM ({held lanes}) h UNION ALL
  SELECT m.lane, 0, 1 FROM {crashed by lane} m WHERE m.consumer_type {names} AND m.keyed = TRUE AND m.crashes > 0
    AND m.available_after <= {now} AND m.payload_type {names} AND m.id NOT IN ({held ids})) x
WHERE x.lane IN (?) GROUP BY x.lane`

// UsedLane is a row of UsedLanesSQL.
type UsedLane struct {
	Lane          int64
	Held, Crashed int
}

// Used returns the values of UsedLanesSQL.
func (s Source) Used(n Names, lanes []int64) []any {
	names := n.NameList(s.Names)
	return []any{names, names, n.NameList(s.Payloads), names, bun.List(lanes)}
}

// quotas reads how many messages of lanes may be claimed, if numbers bound that. Nil means no
// bound. Crashed messages keep a place of their key free for each of them: claims for them wait
// until they can run apart, and clean messages of the key would take each place before.
func (c *laneClaim) quotas(ctx context.Context, picks []LanePick) (*quotas, error) {
	s := c.r.Lanes.Source
	anyOrder := s.PerKey > 0 && (s.PerKey < Unbounded || s.KeyRate != nil)
	if !anyOrder && s.KeyRate == nil || len(picks) == 0 {
		return nil, nil
	}
	lanes := distinct(Each(picks, func(p LanePick) int64 { return p.Lane }))
	all := &quotas{of: make(map[int64]int, len(lanes)), usedTo: make(map[int64]time.Time)}
	for _, lane := range lanes {
		all.of[lane] = cmp.Or(s.PerKey, len(picks))
	}
	var used []UsedLane
	if anyOrder {
		if err := c.Query(ctx, c.tx, UsedLanesSQL, s.Used(c.Names, lanes)...).Scan(ctx, &used); err != nil {
			return nil, fmt.Errorf("held: %w", err)
		}
	}
	for _, lane := range used {
		all.of[lane.Lane] -= lane.Held
	}
	if err := c.keys.read(ctx, lanes, all); err != nil {
		return nil, err
	}
	for _, lane := range used {
		if c.r.Select == Clean {
			all.of[lane.Lane] -= lane.Crashed
		}
	}
	return all, nil
}

// cut drops what exceeds the quotas.
func (all *quotas) cut(picks []LanePick, news *LaneNews) (kept []LanePick) {
	if all == nil {
		return picks
	}
	for _, p := range picks {
		if all.of[p.Lane] <= 0 {
			news.Left = true
			continue
		}
		all.of[p.Lane]--
		kept = append(kept, p)
	}
	return kept
}
