package dialect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/uptrace/bun"
)

// keyRates are the rates of the keys of one consumer, in the transaction of a claim. The nil
// keyRates has no rates.
type keyRates struct {
	Names
	tx   bun.IDB
	rate Rate
}

// read reads how far the rates of lanes are used, and lowers the quotas to what they allow.
func (k *keyRates) read(ctx context.Context, lanes []int64, all *quotas) error {
	if k == nil {
		return nil
	}
	r := k.rate
	var rows []struct {
		Lane   int64
		UsedTo Moment
		Now    Moment
	}
	err := k.Query(ctx, k.tx, `SELECT 0 AS lane, NULL AS used_to, {now} AS now UNION ALL SELECT lane, used_to, {now} FROM {key rates} WHERE name = ? AND lane IN (?)`,
		r.Name, bun.List(lanes)).
		Scan(ctx, &rows)
	if err != nil {
		return fmt.Errorf("rates: %w", err)
	}
	for _, row := range rows {
		all.now, all.usedTo[row.Lane] = row.Now.Time, row.UsedTo.Time
	}
	for _, lane := range lanes {
		all.of[lane], _ = r.allows(all.now, all.usedTo[lane], all.of[lane])
	}
	return nil
}

// spend uses the rates of a claim's lanes, and deletes those that have recovered.
func (k *keyRates) spend(ctx context.Context, all *quotas, picks []LanePick, news *LaneNews) error {
	r := k.rate
	started := make(map[int64]int)
	for _, p := range picks {
		started[p.Lane]++
	}
	var values []any
	for _, lane := range slices.Sorted(maps.Keys(started)) {
		usedTo := r.used(all.now, all.usedTo[lane]).Add(r.after(started[lane]))
		if wait := usedTo.Sub(all.now.Add(r.lastAllowed())); all.of[lane] <= 0 && wait > 0 {
			news.Spent = append(news.Spent, SpentLane{Lane: lane, Wait: wait})
		}
		values = append(values, r.Name, lane, bun.Safe(k.Instant(usedTo)))
	}
	err := k.Exec(ctx, k.tx, `INSERT INTO {key rates} (name, lane, used_to) VALUES `+Rows("(?, ?, ?)", len(started))+
		` ON CONFLICT (name, lane) DO UPDATE SET used_to = excluded.used_to`, values...)
	if err == nil { // each claim removes more than it adds
		err = k.Exec(ctx, k.tx, `DELETE FROM {key rates} WHERE name = ? AND lane IN (SELECT lane FROM {key rates} WHERE name = ? AND used_to < {now} ORDER BY used_to LIMIT ?)`,
			r.Name, r.Name, 2*len(started))
	}
	if err != nil {
		return fmt.Errorf("rates: %w", err)
	}
	return nil
}

// clamp keeps the rates of keys from being used further ahead than a whole burst, and returns
// claims that did not start. Most claims have nothing to write.
func (k *keyRates) clamp(ctx context.Context, unused map[int64]int) error {
	if k == nil {
		return nil
	}
	r := k.rate
	most := `{now} + CAST(? AS bigint){unit}`
	err := k.Exec(ctx, k.tx, `UPDATE {key rates} SET used_to = `+most+` WHERE name = ? AND used_to > `+most, r.after(r.Burst).Microseconds(), r.Name, r.after(r.Burst).Microseconds())
	for _, lane := range slices.Sorted(maps.Keys(unused)) {
		if err == nil {
			err = k.Exec(ctx, k.tx, `UPDATE {key rates} SET used_to = used_to - CAST(? AS bigint){unit} WHERE name = ? AND lane = ?`, r.after(unused[lane]).Microseconds(), r.Name, lane)
		}
	}
	return err
}

// wait returns how long until the first spent rate allows a message, or zero if none is
// spent.
func (k *keyRates) wait(ctx context.Context) (time.Duration, error) {
	r := k.rate
	bound := r.lastAllowed()
	var rows []RateUse
	err := k.Query(ctx, k.tx, `SELECT used_to, {now} AS now FROM {key rates} WHERE name = ? AND used_to > {now} + CAST(? AS bigint){unit} ORDER BY used_to LIMIT 1`,
		r.Name, bound.Microseconds()).
		Scan(ctx, &rows)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	return max(rows[0].UsedTo.Sub(rows[0].Now.Add(bound)), time.Millisecond), nil
}
