package dialect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

// RatedRequest is a request bounded by its rate, if it has one.
type RatedRequest struct {
	ClaimRequest
	Spent bool // nothing may be claimed now

	names       Names
	wait        time.Duration
	now, usedTo time.Time
}

var errHidden = errors.New("its row is hidden")

func (r *RatedRequest) lock(ctx context.Context, tx bun.IDB) error {
	for try := 1; ; try++ {
		var rows []RateUse
		if err := r.names.Query(ctx, tx, RateUsed+` {lock}`, r.Rate.Name).Scan(ctx, &rows); err != nil {
			return err
		}
		if len(rows) > 0 {
			r.now, r.usedTo = rows[0].Now.Time, rows[0].UsedTo.Time
			return nil
		}
		if try == 2 {
			return errHidden
		}
		if err := r.names.Exec(ctx, tx, `INSERT INTO {rates} (name, used_to) VALUES (?, {now}) {keep named}`, r.Rate.Name); err != nil {
			return err
		}
	}
}

// clamp writes the bounded instant, which would otherwise stay a whole burst ahead. The clock was
// read before other transactions released the row, so it is read again first.
func (r *RatedRequest) clamp(ctx context.Context, tx bun.IDB) error {
	if !r.usedTo.After(r.Rate.used(r.now, r.usedTo)) {
		return nil
	}
	var fresh Moment
	if err := r.names.Query(ctx, tx, `SELECT {now}`).Scan(ctx, &fresh); err != nil {
		return err
	}
	if r.now = fresh.Time; !r.usedTo.After(r.Rate.used(r.now, r.usedTo)) {
		return nil
	}
	return r.store(ctx, tx, r.Rate.used(r.now, r.usedTo))
}

// Trim is Trim of the request.
func (r *RatedRequest) Trim(picks []Pick) (Claim, []Pick) {
	c, picks := r.ClaimRequest.Trim(picks)
	r.hold(&c, len(picks))
	return c, picks
}

// hold marks a claim of n messages that the rate has bounded: there may be more, and when.
func (r *RatedRequest) hold(c *Claim, n int) {
	if r.wait > 0 && n >= r.Limit {
		c.Cut, c.Wait = true, r.wait
	}
}

// Spend uses the rate for what was claimed, and returns what was not used before.
func (r *RatedRequest) Spend(ctx context.Context, tx bun.IDB, c Claim) error {
	if r.Rate == nil || len(c.Messages) == 0 && r.Unused == 0 {
		return nil
	}
	usedTo := later(r.now, r.usedTo).Add(r.Rate.after(len(c.Messages)))
	if err := r.store(ctx, tx, usedTo); err != nil {
		return fmt.Errorf("rate %q: %w", r.Rate.Name, err)
	}
	return nil
}

func (r *RatedRequest) store(ctx context.Context, tx bun.IDB, usedTo time.Time) error {
	r.usedTo = usedTo
	return r.names.Exec(ctx, tx, `UPDATE {rates} SET used_to = ? WHERE name = ?`, bun.Safe(r.names.Instant(usedTo)), r.Rate.Name)
}
