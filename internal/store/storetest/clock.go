package storetest

import (
	"context"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func clockCases() []testCase {
	return []testCase{
		{"the clock is the database's unless the context has another", clockOfDatabase},
		{"the clock is asked anew by every call", clockPerCall},
		{"the clock runs through every statement", clockEverywhere},
		{"the database's settings are understood", settings},
	}
}

// clockOfDatabase allows a minute between the clocks of the machines.
func clockOfDatabase(k *kit) {
	real := k.with(k.tables)
	real.ctx = k.Context()
	delayed := k.message("c")
	delayed.Delay = time.Hour
	real.insert(k.message("c"), delayed)
	var created []struct {
		At store.Moment `bun:"created_at"`
	}
	k.must("read", k.db.NewRaw("SELECT created_at FROM ?", k.table("consumer_messages")).Scan(k.ctx, &created))
	equal(k, "messages", len(created), 2)
	for _, row := range created {
		if off := time.Since(row.At.Time); off.Abs() > time.Minute {
			k.Errorf("created: got %s, want now", row.At.Time)
		}
	}
	c := real.claim(request("a", want("c", 10)))
	equal(k, "claimed", len(c.Messages), 1)
	poll, err := k.store.Claims.Poll(real.ctx, k.db, []store.Want{want("c", 1)})
	k.must("poll", err)
	if poll.Next <= 59*time.Minute || poll.Next > time.Hour || len(poll.Due) != 0 || poll.Expired {
		k.Errorf("poll: got %+v, want only a next message in an hour", poll)
	}
	equal(k, "recovered under the real lease", real.recover(3), store.Recovered{})
	equal(k, "recovered years later", k.recover(3), store.Recovered{Claims: 1, Crashed: 1})
}

func clockPerCall(k *kit) {
	calls := 0
	ctx := store.WithClock(k.Context(), func() time.Time {
		calls++
		return epoch().Add(time.Hour)
	})
	_, err := k.store.Outbox.Insert(ctx, k.db, []store.NewMessage{k.message("c")})
	k.must("insert", err)
	if calls == 0 {
		k.Error("the clock of the context: got 0 calls, want some")
	}
	if c := k.claim(request("a", want("c", 1))); c.ID != 0 {
		k.Errorf("claim an hour early: got messages %v, want none", idsOf(c))
	}
	c, err := k.store.Claims.Claim(ctx, k.db, request("a", want("c", 1)))
	k.must("claim", err)
	equal(k, "claimed an hour later", len(c.Messages), 1)
}

func clockEverywhere(k *kit) {
	c := k.take("a", "c", k.add("c", 2)...)
	at := func(d time.Duration) context.Context {
		return store.WithClock(k.Context(), func() time.Time { return epoch().Add(d) })
	}
	_, err := k.store.Claims.Extend(at(time.Hour), k.db, "a", lease)
	k.must("extend", err)
	equal(k, "lease extended", k.claims()[0].LeasedTo, "1h0m30s")
	_, err = k.store.Claims.Settle(at(2*time.Hour), k.db, "a", lease, results(c, store.Snoozed, c.Messages[0].ID))
	k.must("settle", err)
	equal(k, "snoozed until", k.row(c.Messages[0].ID).Available, "2h0m0s")
	equal(k, "lease after settling", k.claims()[0].LeasedTo, "2h0m30s")
	got, err := k.store.Claims.Recover(at(3*time.Hour), k.db, 3)
	k.must("recover", err)
	equal(k, "recovered", got, store.Recovered{Claims: 1, Crashed: 1})
}

func settings(k *kit) {
	got, err := k.store.Check(k.ctx, k.db)
	k.must("check", err)
	equal(k, "row locks", got.RowLocks, k.store.RowLocks())
	if got.RowLocks != (got.LockWait == 0) {
		k.Errorf("settings: got %+v, want a lock wait exactly where rows are not locked", got)
	}
}
