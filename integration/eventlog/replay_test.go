package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// mails is a projection whose effects must not happen twice. Its Reset keeps them.
type mails struct {
	*ledger
	batch  bool
	on     projection.OnError
	broken int // the amount that cannot be applied
}

func (m *mails) runner(version int) *projection.Runner {
	m.Helper()
	p := projection.Projection{Name: "mails", Version: version, OnError: m.on, Reset: func(context.Context, bun.Tx) error { return nil }}
	ofMoves(&p, m.batch, func(ctx context.Context, tx bun.Tx, _ string, _ int64, amount int) error {
		if amount == m.broken {
			return bus.Permanent(errors.New("broken"))
		}
		_, err := tx.NewRaw("INSERT INTO applied (version) VALUES (?)", amount).Exec(ctx)
		return err
	})
	chain := append(middleware.Default(middleware.Options{}), middleware.SkipOnReplay("mails"))
	return testapp.Must[*projection.Runner](m)(projection.NewRunner(m.db, m.log, projection.RunnerConfig{Chain: chain}, p))
}

// mustSend compares the mails sent so far.
func (m *mails) mustSend(when string, want ...int) {
	m.Helper()
	var sent []int
	testapp.OK(m, m.db.NewRaw("SELECT version FROM applied ORDER BY version").Scan(m.ctx, &sent))
	if !slices.Equal(sent, want) {
		m.Errorf("%s: got mails %v, want %v", when, sent, want)
	}
}

// eachMails runs a test in batches and without, on each database.
func eachMails(t *testing.T, on projection.OnError, test func(*mails)) {
	t.Parallel()
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprintf("in batches %v", batch), func(t *testing.T) {
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) { test(&mails{newLedger(t, db), batch, on, 0}) })
		})
	}
}

// TestAPageIsEitherReplayedOrLive: a Batch passes through the chain once, with its first event.
// Promise: projection
func TestAPageIsEitherReplayedOrLive(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("in version %d", version), func(t *testing.T) {
			eachMails(t, projection.Halt, func(m *mails) {
				m.append("account-1", eventlog.NoStream, moved{1}, moved{2}, moved{3})
				m.catchUp(m.runner(1))
				r := m.runner(version)
				if testapp.OK(m, r.Check(m.ctx)); version == 1 {
					testapp.OK(m, r.Rebuild(m.ctx, "mails"))
				}
				m.append("account-1", eventlog.AnyVersion, moved{4}, moved{5})
				m.catchUp(r)
				m.mustSend("in the end", 1, 2, 3, 4, 5)
			})
		})
	}
}

// TestAParkedEventIsNoReplayOfARebuild, until it was applied.
// Promise: replay
func TestAParkedEventIsNoReplayOfARebuild(t *testing.T) {
	for name, test := range map[string]struct {
		on   projection.OnError
		sent []int // while 3 cannot be applied
	}{"event": {projection.Park, []int{1, 2, 4, 5}}, "stream": {projection.ParkStream, []int{1, 2, 5}}} {
		t.Run(name, func(t *testing.T) {
			eachMails(t, test.on, func(m *mails) {
				m.append("account-1", eventlog.NoStream, moved{1}, moved{2}, moved{3}, moved{4})
				m.append("account-2", eventlog.NoStream, moved{5})
				m.broken = 3
				r := m.runner(1)
				m.catchUp(r)
				m.mustSend("with a broken function", test.sent...)
				parked := len(testapp.Must[[]projection.Parked](m)(r.Parked(m.ctx, "mails", 10)))
				testapp.OK(m, r.Rebuild(m.ctx, "mails"))
				if left, err := r.Parked(m.ctx, "mails", 10); len(left) != 0 || err != nil {
					m.Errorf("parked after a rebuild: got %v and error %v, want none", left, err)
				}
				if n, err := r.RetryParked(m.ctx, "mails"); n != 0 || err != nil {
					m.Errorf("retried after a rebuild: got %d and error %v, want none", n, err)
				}
				m.catchUp(r)
				m.mustSend("rebuilt with a broken function", test.sent...)
				if again, err := r.Parked(m.ctx, "mails", 10); len(again) != parked || err != nil {
					m.Errorf("parked again: got %v and error %v, want %d", again, err, parked)
				}
				m.broken = 0
				for _, when := range []string{"rebuilt", "rebuilt again"} {
					testapp.OK(m, r.Rebuild(m.ctx, "mails"))
					m.catchUp(r)
					m.mustSend(when, 1, 2, 3, 4, 5)
				}
				if n := m.count("SELECT count(*) FROM event_parked"); n != 0 {
					m.Errorf("records of parked events in the end: got %d, want 0", n)
				}
			})
		})
	}
}

// TestAParkedEventIsNoReplayOfANewVersion, until one version has applied it.
// Promise: replay
func TestAParkedEventIsNoReplayOfANewVersion(t *testing.T) {
	eachMails(t, projection.Park, func(m *mails) {
		m.append("account-1", eventlog.NoStream, moved{1}, moved{2}, moved{3}, moved{4})
		m.broken = 3
		first := m.runner(1)
		m.catchUp(first)
		m.mustSend("version 1", 1, 2, 4)
		m.broken = 0
		m.catchUp(m.runner(2))
		m.mustSend("version 2", 1, 2, 3, 4)
		m.append("account-1", eventlog.AnyVersion, moved{6})
		m.broken = 6
		m.catchUp(first)
		m.broken = 0
		m.catchUp(m.runner(2)) // it applies as live what version 1 has parked
		m.catchUp(m.runner(3))
		m.mustSend("version 3", 1, 2, 3, 4, 6)
	})
}

// TestANewVersionReplaysWhatEachShardHasHad has a shard of version 1 halt behind the other one.
func TestANewVersionReplaysWhatEachShardHasHad(t *testing.T) {
	t.Parallel()
	for shards, replays := range map[int][]string{1: {"catchup", "catchup"}, 2: {"replay", "replay"}, 4: {"replay", "replay"}} {
		t.Run(fmt.Sprintf("with %d shards", shards), func(t *testing.T) {
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				l := newLedger(t, db)
				modes := map[string][]string{}
				p := balances()
				p.Shards, p.MaxAttempts = 2, 1
				p.On = []projection.Handler{projection.On(func(_ context.Context, _ bun.Tx, e moved) error {
					if e.Amount < 0 {
						return errors.New("broken")
					}
					return nil
				})}
				l.append("account-1", eventlog.AnyVersion, moved{-1}) // streams of different shards
				l.append("account-3", eventlog.AnyVersion, moved{1}, moved{1})
				stop := running(t, "runner", l.runner(p).Run)
				eventually(t, "one shard is halted, and the other is done", func() bool {
					return l.count("SELECT count(*) FROM event_subscriptions WHERE status = 'halted' OR position = 3") == 2
				})
				stop()
				p.Version, p.Shards = 2, shards
				p.On = []projection.Handler{projection.On(func(ctx context.Context, _ bun.Tx, _ moved) error {
					m, _ := bus.MessageFromContext(ctx)
					mode := access.Mode(m)
					if mode == "" {
						mode = "catchup" // the last event of the log
					}
					modes[m.Event.Stream] = append(modes[m.Event.Stream], mode)
					return nil
				})}
				l.catchUp(l.runner(p))
				want := map[string][]string{"account-1": {"catchup"}, "account-3": replays}
				if !reflect.DeepEqual(modes, want) {
					t.Errorf("modes: got %v, want %v", modes, want)
				}
			})
		})
	}
}

// TestAParkedReplayIsRetriedAsAReplay has version 2 fail once at an event that version 1 has applied.
func TestAParkedReplayIsRetriedAsAReplay(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		fails, suffix := false, ""
		p := balances()
		p.OnError = projection.Park
		p.On = []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx, e moved) error {
			if fails && e.Amount >= 2 {
				return bus.Permanent(errors.New("broken"))
			}
			return apply(ctx, tx, suffix, e.Amount)
		})}
		l.append("account-1", eventlog.NoStream, moved{1}, moved{2})
		l.catchUp(l.runner(p))
		p.Version = 2
		r := l.runner(p)
		fails, suffix = true, "2"
		l.catchUp(r)
		l.append("account-1", eventlog.AnyVersion, moved{3})
		l.catchUp(r)
		fails = false
		if n, err := r.RetryParked(l.ctx, "balances"); n != 2 || err != nil {
			t.Errorf("retry: got %d and error %v, want 2", n, err)
		}
		var modes []string
		testapp.OK(t, db.NewRaw("SELECT mode FROM applied2 ORDER BY version").Scan(l.ctx, &modes))
		if want := []string{"replay", "replay", "catchup"}; !slices.Equal(modes, want) {
			t.Errorf("modes: got %v, want %v", modes, want)
		}
	})
}
