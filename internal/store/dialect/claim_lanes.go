package dialect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"
)

const (
	// A claim looks for lanes among this many messages, held or not, for each that it may take, and
	// among leastLook at least: a few that cannot run must not hide the others.
	look      = 4
	leastLook = 100
	// MostWalked is how many lanes a claim walks over when it has found few.
	MostWalked = 100
)

// proposeSQL lists lanes that are neither held nor blocked, by the ranks of their due messages,
// among the first behind a rank.
const proposeSQL = `
SELECT w.lane, MIN(w.rank) AS first, MAX(w.rank) AS last, count(*) AS n FROM (
  SELECT f.lane, f.rank FROM (
    SELECT m.lane, m.rank, m.available_after FROM {messages} m WHERE m.consumer_type = ? AND m.keyed = TRUE AND m.rank > ?{loose}
      AND NOT EXISTS (SELECT 1 FROM {paused} u WHERE u.consumer_type = ?) ORDER BY m.rank LIMIT ?) f
  WHERE f.available_after <= {now} AND f.lane NOT IN ({busy lanes})
    AND NOT EXISTS (SELECT 1 FROM {poisoned} p WHERE p.consumer_type {names} AND p.lane = f.lane AND p.parks){unspent} ORDER BY f.rank LIMIT ?) w
GROUP BY w.lane ORDER BY 2`

// edgeSQL returns how many messages that look has met, and the last one.
const edgeSQL = `{plan}SELECT count(*) AS n, COALESCE(MAX(f.rank), 0) AS last FROM (
  SELECT m.rank FROM {by rank} m WHERE m.consumer_type = ? AND m.keyed = TRUE AND m.rank > ?{loose}
    AND NOT EXISTS (SELECT 1 FROM {paused} u WHERE u.consumer_type = ?) ORDER BY m.rank LIMIT ?) f`

// walkSQL lists the next lanes behind one, and whether they are free.
const walkSQL = `
WITH RECURSIVE walk(lane, step) AS (
  SELECT (SELECT MIN(m.lane) FROM {messages} m WHERE m.consumer_type = ? AND m.lane IS NOT NULL AND m.lane > ?), 1
  UNION ALL
  SELECT (SELECT MIN(m.lane) FROM {messages} m WHERE m.consumer_type = ? AND m.lane IS NOT NULL AND m.lane > w.lane), w.step + 1
  FROM walk w WHERE w.lane IS NOT NULL AND w.step < ?)
SELECT w.lane, w.lane NOT IN ({busy lanes}) AS free FROM walk w WHERE w.lane IS NOT NULL ORDER BY w.step`

// firstLanes lists the first lanes of a consumer, and whether there are more, from one to the next.
// Behind none is 0.
const firstLanes = `
WITH RECURSIVE walk(lane, step) AS (
  SELECT CAST(0 AS bigint), 0
  UNION ALL
  SELECT (SELECT MIN(m.lane) FROM {messages} m WHERE m.consumer_type = ? AND m.lane IS NOT NULL AND m.lane > w.lane), w.step + 1
  FROM walk w WHERE w.lane IS NOT NULL AND w.step <= 500)
SELECT w.lane, w.step > 500 AS more FROM walk w WHERE w.lane IS NOT NULL`

// laneClaim is one claim of messages with keys.
type laneClaim struct {
	Names
	tx      bun.IDB
	dialect LaneDialect
	r       ClaimRequest
	keys    *keyRates // nil if the keys have no rate
	news    LaneNews
}

func (c *laneClaim) claim(ctx context.Context) (claim Claim, err error) {
	rated, err := c.Rated(ctx, c.tx, c.r)
	if err != nil {
		return Claim{}, err
	}
	if rated.Limit > 0 || len(c.r.Lanes.Unused) > 0 {
		if err := c.lockGates(ctx); err != nil {
			return Claim{}, fmt.Errorf("gate: %w", err)
		}
		if err := c.keys.clamp(ctx, c.r.Lanes.Unused); err != nil {
			return Claim{}, fmt.Errorf("rates: %w", err)
		}
	}
	if rated.Limit == 0 {
		rated.hold(&claim, 0)
		claim.Unasked = true
		return claim, rated.Spend(ctx, c.tx, claim)
	}
	c.r = rated.ClaimRequest
	find := c.findRuns
	if c.r.Select != Clean {
		find = c.findStuck
	}
	found, err := find(ctx)
	if err != nil {
		return Claim{}, fmt.Errorf("pick: %w", err)
	}
	quotas, err := c.quotas(ctx, found)
	if err != nil {
		return Claim{}, fmt.Errorf("quotas: %w", err)
	}
	allowed := quotas.cut(found, &c.news)
	picks := rated.fit(allowed)
	if len(picks) < len(allowed) {
		claim.Cut, c.news.Left = true, true
	}
	if picks, err = c.complete(ctx, picks); err != nil {
		return Claim{}, err
	}
	rated.hold(&claim, len(picks))
	if c.news.Left && c.keys != nil {
		if c.news.Wait, err = c.keys.wait(ctx); err != nil {
			return Claim{}, fmt.Errorf("rates: %w", err)
		}
	}
	claim.News = c.news
	if len(picks) == 0 {
		return claim, rated.Spend(ctx, c.tx, claim)
	}
	if err := c.take(ctx, &claim, picks); err != nil {
		return Claim{}, err
	}
	if c.keys != nil {
		if err := c.keys.spend(ctx, quotas, picks, &claim.News); err != nil {
			return Claim{}, err
		}
	}
	return claim, rated.Spend(ctx, c.tx, claim)
}

// take records the claim and takes what it has picked.
func (c *laneClaim) take(ctx context.Context, claim *Claim, picks []LanePick) (err error) {
	claim.Sent = time.Now()
	if claim.ID, err = c.dialect.Record(ctx, c.r, picks); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	claim.Messages = Each(picks, func(p LanePick) Message { return p.Message })
	return nil
}

// complete reads what large picks lack. Their rows are not locked, so a producer may have replaced
// some. It drops these and what comes behind them in their lanes.
func (c *laneClaim) complete(ctx context.Context, picks []LanePick) ([]LanePick, error) {
	gone, err := readLarge(ctx, c.Names, c.tx, picks, func(p *LanePick) *Pick { return &p.Pick })
	if err != nil || len(gone) == 0 {
		return picks, err
	}
	c.news.Left = true
	cut := make(map[int64]bool) // lanes
	return slices.DeleteFunc(picks, func(p LanePick) bool {
		cut[p.Lane] = cut[p.Lane] || gone[p.ID] != nil
		return cut[p.Lane]
	}), nil
}

// findRuns looks for lanes and picks the first messages of the free ones, up to the first that may
// not run yet.
func (c *laneClaim) findRuns(ctx context.Context) (picks []LanePick, err error) {
	r, l, news := c.r, c.r.Lanes, &c.news
	near, free, err := c.propose(ctx)
	if err != nil {
		return nil, err
	}
	lanes := slices.Clone(l.Sticky[:min(len(l.Sticky), r.Limit)])
	// A source that shares among keys gives each its turn, even if those in front have many
	// messages or the limit is small.
	turns, elsewhere := l.PerKey > 0, news.Full || l.Hint > 0
	if l.Walk || turns && (elsewhere || len(near) > r.Limit) || elsewhere && len(near)*10 < r.Limit {
		walked, err := c.walkOn(ctx)
		if err != nil {
			return nil, err
		}
		if turns {
			lanes = append(walked, lanes...)
		} else {
			lanes = append(lanes, walked...)
		}
	}
	if room := r.most(); len(near) > room { // the look ends before those that are left out
		news.Full, news.Last = true, near[room].First-1
		near = near[:room]
	}
	lanes = distinct(append(lanes, Each(near, func(m met) int64 { return m.Lane })...))
	if len(lanes) == 0 {
		return nil, nil
	}
	sharers := len(lanes)
	if r.fewDeep(sharers, *news) {
		sharers = (sharers + 1) / 2
	}
	each := min(max(r.Limit/sharers, 1), max(l.Run, 1))
	found, err := c.dialect.Heads(ctx, l, lanes, each)
	if err != nil {
		return nil, err
	}
	picks = r.runs(found, each, news)
	news.Left = news.Left || free > len(picks)
	return r.share(picks, news), nil
}

// fewDeep reports whether there are few lanes with many messages: another claim may get no more of
// them than this one leaves.
func (r ClaimRequest) fewDeep(lanes int, news LaneNews) bool {
	return r.Lanes.PerKey == 0 && news.Full && lanes*10 < r.Limit
}

// share leaves half of a few deep lanes to another claim, which can begin meanwhile.
func (r ClaimRequest) share(picks []LanePick, news *LaneNews) []LanePick {
	ends := make([]int, 0, len(picks)) // where the messages of each lane end
	for i := range picks {
		if i+1 == len(picks) || picks[i+1].Lane != picks[i].Lane {
			ends = append(ends, i+1)
		}
	}
	if len(ends) < 2 || !r.fewDeep(len(ends), *news) {
		return picks
	}
	kept := picks[:ends[(len(ends)+1)/2-1]]
	for _, p := range picks[len(kept):] {
		if len(news.Deep) == 0 || !slices.Contains(news.Deep, p.Lane) {
			news.Deep = append(news.Deep, p.Lane)
		}
	}
	return kept
}

// most returns how many messages of free lanes are enough for a look.
func (r ClaimRequest) most() int { return max(r.Limit, leastLook, r.Lanes.Look) }

// met is a lane that a look has met, or the total of the look.
type met struct {
	Lane, First, Last int64
	N                 int // messages
}

// propose returns the free lanes among the first messages, and how many of these messages are
// theirs.
func (c *laneClaim) propose(ctx context.Context) (near []met, free int, err error) {
	n, d, news, l, most := c.Names, c.dialect, &c.news, c.r.Lanes, c.r.most()
	propose, edge := n.Looks(l.Source)
	seen := slices.Concat([]any{l.Name, l.Hint}, l.loose(n), []any{l.Name, look * most})
	if err = d.Run(ctx, propose, slices.Concat(seen, l.busy(n), []any{n.NameList(l.Names)}, l.unspent(), []any{most})...).Scan(ctx,
		&near); err != nil {
		return nil, 0, err
	}
	for _, m := range near {
		free, news.Last = free+m.N, max(news.Last, m.Last)
	}
	if len(near) > 0 {
		news.First = near[0].First
	}
	if free == most { // there is enough to take
		news.Full = true
		return near, free, nil
	}
	var all met
	if err := d.Run(ctx, edge, seen...).Scan(ctx, &all); err != nil {
		return nil, 0, err
	}
	news.Last, news.Full = max(news.Last, all.Last), all.N >= look*most
	news.Left = all.N > free
	return near, free, nil
}

// walkOn returns the free ones of the next lanes behind the cursor. For sources that share, these
// are no more than can be claimed, since the next claim begins behind them.
func (c *laneClaim) walkOn(ctx context.Context) (free []int64, err error) {
	r, news := c.r, &c.news
	rows, more, err := c.dialect.Walk(ctx, c.tx, r.Lanes)
	if err != nil {
		return nil, err
	}
	for i, row := range rows {
		if row.Free {
			free = append(free, row.Lane)
		}
		if r.Lanes.PerKey > 0 && len(free) == r.Limit && i < len(rows)-1 {
			news.Walked = row.Lane
			return free, nil
		}
	}
	if more {
		news.Walked = rows[len(rows)-1].Lane
	}
	return free, nil
}

// distinct drops duplicates.
func distinct(lanes []int64) []int64 {
	seen := make(map[int64]bool, len(lanes))
	return slices.DeleteFunc(lanes, func(lane int64) bool {
		again := seen[lane]
		seen[lane] = true
		return again
	})
}

// runs cuts the messages of each lane before the first that may not run now, and notes the lanes
// that may have more. Crashed messages are left to claims of their own.
func (r ClaimRequest) runs(found []LanePick, each int, news *LaneNews) (picks []LanePick) {
	length, over := 0, false
	for i, p := range found {
		if i == 0 || found[i-1].Lane != p.Lane {
			length, over = 0, false
		}
		known := slices.Contains(r.Lanes.Payloads, p.PayloadType)
		if !known && !over && length == 0 {
			news.Unknown = p.PayloadType
		}
		if over = over || !p.Due || p.Crashes != 0 || !known; over {
			continue
		}
		picks = append(picks, p)
		if length++; length == each && each > 1 { // else there are many others
			news.Deep = append(news.Deep, p.Lane)
		}
	}
	return picks
}

// fit drops what exceeds the limits of the request.
func (r ClaimRequest) fit(picks []LanePick) []LanePick {
	size := 0
	for i := range picks {
		if size += picks[i].bytes(); i > 0 && size > r.MaxBytes || i >= r.Limit {
			return picks[:i]
		}
	}
	return picks
}

// findStuck picks crashed messages.
func (c *laneClaim) findStuck(ctx context.Context) (picks []LanePick, err error) {
	n, r := c.Names, c.r
	low, high := r.Select.Crashes()
	free, values := n.Free("m", "m", r.Lanes.Source)
	args := slices.Concat([]any{r.Lanes.Name}, r.Lanes.loose(n), []any{low, high, bun.List(r.Lanes.Payloads)}, values, []any{r.Limit})
	err = n.Query(ctx, c.tx, r.Lanes.For(`{plan}SELECT {lane columns}, TRUE AS due FROM {crashed by lane} m WHERE `+stuck)+`
  AND m.crashes BETWEEN ? AND ? AND m.payload_type IN (?) AND `+free+` ORDER BY m.rank LIMIT ?`, args...).Scan(ctx, &picks)
	return picks, err
}

// gate is the row that a claim for a consumer locks.
type gate struct {
	ConsumerType string
	Parks        bool
}

// lockGates locks the rows of a consumer's names until the end of the transaction.
func (c *laneClaim) lockGates(ctx context.Context) error {
	l := c.r.Lanes
	for try := 1; ; try++ {
		var gates []gate
		err := c.Query(ctx, c.tx, `SELECT consumer_type, parks FROM {gates}{by key} WHERE consumer_type IN (?) ORDER BY consumer_type {lock}`, bun.List(l.Names)).
			Scan(ctx, &gates)
		if err != nil {
			return err
		}
		if len(gates) == len(l.Names) {
			if slices.ContainsFunc(gates, func(g gate) bool { return g.Parks != l.Parks }) {
				return c.setParks(ctx)
			}
			return nil
		}
		if try == 2 {
			return errHidden
		}
		for _, name := range slices.Sorted(slices.Values(l.Names)) {
			if err := c.Exec(ctx, c.tx, `INSERT INTO {gates} (consumer_type, parks) VALUES (?, ?) {keep consumer}`, name, l.Parks); err != nil {
				return err
			}
		}
	}
}

// setParks records whether poisoned messages of a consumer block their keys from now on. The messages
// keep what they were poisoned with: another process may go by that.
func (c *laneClaim) setParks(ctx context.Context) error {
	l := c.r.Lanes
	return c.Exec(ctx, c.tx, `UPDATE {gates}{by key} SET parks = ? WHERE consumer_type IN (?)`, l.Parks, bun.List(l.Names))
}
