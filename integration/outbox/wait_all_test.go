package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// waitApp is an application with members, and a consumer of what waits for them.
type waitApp struct {
	*testapp.App
	mu    sync.Mutex
	runs  []string // members and payloads of WhenDone, in their order
	fired []string
	bad   bool // members fail
}

const waitGroup = "order:17"

func newWaitApp(t *testing.T, db *bun.DB, more ...bus.Consumer) *waitApp {
	t.Helper()
	w := new(waitApp)
	member := func(ctx context.Context, o order) error {
		m, _ := bus.MessageFromContext(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case m.Group != waitGroup && m.Group != "":
			t.Errorf("group of the message: got %q, want %q", m.Group, waitGroup)
		case w.bad && o.N > 0:
			return errors.New("fails")
		}
		w.runs = append(w.runs, o.ID)
		return nil
	}
	end := func(_ context.Context, r refund) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.runs, w.fired = append(w.runs, r.ID), append(w.fired, r.ID)
		return nil
	}
	consumers := append(more, bus.Consume("member", member, bus.MaxAttempts(1)), bus.Consume("end", end))
	w.App = testapp.New(t, db, consumers...)
	return w
}

func (w *waitApp) ends() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.fired)
}

func (w *waitApp) whenDone(db bus.Handle, options ...outbox.WhenDoneOption) {
	w.Helper()
	testapp.OK(w.T, w.Producer.WhenDone(w.Context(), db, outbox.Group(waitGroup), refund{ID: "ship"}, options...))
}

func (w *waitApp) members(n int, options ...outbox.Option) {
	w.Helper()
	items := make([]outbox.Item, n)
	for i := range items {
		items[i] = outbox.Item{Payload: order{ID: fmt.Sprint(i), N: i}, Options: append([]outbox.Option{outbox.Group(waitGroup)}, options...)}
	}
	testapp.OK(w.T, testapp.Second(w.Producer.ProduceMany(w.Context(), w.DB, items...)))
}

// step processes messages until none is due.
func (w *waitApp) step() {
	w.Helper()
	p := testapp.Must[*outbox.Processor](w.T)(outbox.NewProcessor(w.DB, w.Registry, testapp.Fast()))
	for {
		if ran := testapp.Must[bool](w.T)(p.ProcessNext(w.Context())); !ran {
			return
		}
	}
}

func (w *waitApp) wantEnds(what string, want ...string) {
	w.Helper()
	if got := w.ends(); !slices.Equal(got, want) {
		w.Fatalf("%s: got the ends %v, want %v", what, got, want)
	}
}

func TestWhenDoneRunsAfterAllMembers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		w := newWaitApp(t, db)
		testapp.OK(t, w.Producer.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
			for i := range 3 {
				if _, err := w.Producer.Produce(ctx, tx, order{ID: fmt.Sprint(i)}, outbox.Group(waitGroup)); err != nil {
					return err
				}
			}
			return w.Producer.WhenDone(ctx, tx, outbox.Group(waitGroup), refund{ID: "ship"})
		}))
		if err := w.Producer.WhenDone(t.Context(), db, outbox.Group(waitGroup), refund{ID: "again"}); !errors.Is(err, outbox.ErrGroupExists) {
			t.Errorf("a second WhenDone: got %v, want %v", err, outbox.ErrGroupExists)
		}
		r := w.Start(testapp.Fast())
		testapp.Eventually(t, "the end", func() bool { return len(w.ends()) == 1 })
		r.MustStop()
		if n := len(w.runs); n != 4 || w.runs[3] != "ship" {
			t.Errorf("runs: got %v, want three members and then ship", w.runs)
		}
		w.whenDone(db) // the name is free again, and the group is empty
		w.step()
		w.wantEnds("an empty group", "ship", "ship")
		if n := w.Count(`SELECT count(*) FROM message_groups`); n != 0 {
			t.Errorf("groups at the end: got %d, want none", n)
		}
	})
}

func TestAGroupEndsSoonAfterItsLastMember(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		w := newWaitApp(t, db)
		config := testapp.Fast()
		config.PollInterval = time.Hour // only hints and announcements
		w.Start(config)
		w.members(1)
		w.whenDone(db)
		ran := func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.runs) > 0 }
		testapp.Poll(t, "the member", time.Minute, time.Millisecond, ran)
		began := time.Now()
		testapp.Poll(t, "the end", time.Minute, time.Millisecond, func() bool { return len(w.ends()) == 1 })
		if took := time.Since(began); took > 1500*time.Millisecond { // a look at all groups comes every two seconds
			t.Errorf("the end: got it %s after the member, want it soon", took)
		} else {
			t.Logf("the end came %s after the member", took.Round(time.Millisecond))
		}
	})
}

// TestALockedGroupDoesNotDelayTheOthers: an open transaction has the insert ids that the end of some groups writes.
func TestALockedGroupDoesNotDelayTheOthers(t *testing.T) {
	t.Parallel()
	w := newWaitApp(t, testdb.Postgres(t))
	tx := testapp.Must[bun.Tx](t)(w.DB.BeginTx(t.Context(), nil))
	defer tx.Rollback() //nolint:errcheck // it only holds
	for i := range 4 {
		held := outbox.InsertID(fmt.Sprint("held", i))
		testapp.OK(t, testapp.Second(w.Producer.Produce(t.Context(), tx, refund{ID: "held"}, held)))
		testapp.OK(t, w.Producer.WhenDone(t.Context(), w.DB, outbox.Group(fmt.Sprint("held", i)), refund{ID: "late"}, held))
	}
	w.whenDone(w.DB) // its name sorts behind theirs
	w.Start(testapp.Fast())
	began := time.Now()
	testapp.Poll(t, "the end", time.Minute, time.Millisecond, func() bool { return len(w.ends()) == 1 })
	if took := time.Since(began); took > 10*time.Second { // it waits a second for each
		t.Errorf("the end: got it after %s, want it within 10 s", took)
	}
	w.wantEnds("while the others are held", "ship")
}

// TestALockedGroupDoesNotKeepProcessNextFromTheOthers: it is the error only if nothing ran.
func TestALockedGroupDoesNotKeepProcessNextFromTheOthers(t *testing.T) {
	t.Parallel()
	w := newWaitApp(t, testdb.Postgres(t))
	tx := testapp.Must[bun.Tx](t)(w.DB.BeginTx(t.Context(), nil))
	defer tx.Rollback() //nolint:errcheck // it only holds
	held := outbox.InsertID("held")
	testapp.OK(t, testapp.Second(w.Producer.Produce(t.Context(), tx, refund{ID: "held"}, held)))
	testapp.OK(t, w.Producer.WhenDone(t.Context(), w.DB, outbox.Group("a"), refund{ID: "late"}, held))
	w.whenDone(w.DB) // its name sorts behind that
	p := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(w.DB, w.Registry, testapp.Fast()))
	if ran, err := p.ProcessNext(t.Context()); !ran || err != nil {
		t.Errorf("the other's payload: got %v, %v, want it run", ran, err)
	}
	w.wantEnds("while one is held", "ship")
	if ran, err := p.ProcessNext(t.Context()); ran || err == nil {
		t.Errorf("the held group alone: got %v, %v, want its error", ran, err)
	}
}

// TestAGroupThatCouldNotEndIsTriedAgainSoon: the transaction that has its insert id ends right after the first try.
func TestAGroupThatCouldNotEndIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	w := newWaitApp(t, testdb.Postgres(t))
	tx := testapp.Must[bun.Tx](t)(w.DB.BeginTx(t.Context(), nil))
	defer tx.Rollback() //nolint:errcheck // it only holds
	held := outbox.InsertID("held")
	testapp.OK(t, testapp.Second(w.Producer.Produce(t.Context(), tx, refund{ID: "held"}, held)))
	testapp.OK(t, w.Producer.WhenDone(t.Context(), w.DB, outbox.Group("g"), refund{ID: "late"}, held))
	var lines testapp.Lines
	config := testapp.Fast()
	config.Logger = lines.Logger()
	w.Start(config)
	tried := func() bool { return strings.Contains(lines.String(), "group cannot end") }
	testapp.Poll(t, "the first try", time.Minute, time.Millisecond, tried)
	testapp.OK(t, tx.Rollback())
	began := time.Now()
	testapp.Poll(t, "the end", 2*time.Minute, time.Millisecond, func() bool { return len(w.ends()) == 1 })
	if took := time.Since(began); took > 15*time.Second { // a second, and a look at all groups
		t.Errorf("the end: got it %s after the lock, want it within seconds", took)
	}
}

// TestAGroupOfANewerReleaseIsLeftToIt: its payload has an option that this release does not know.
func TestAGroupOfANewerReleaseIsLeftToIt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		w := newWaitApp(t, db)
		w.members(1)
		w.whenDone(db)
		const known, newer = `'"consumer":'`, `'"added":1,"consumer":'`
		w.Exec(`UPDATE message_groups SET messages = REPLACE(messages, ` + known + `, ` + newer + `)`)
		w.step()
		w.wantEnds("beside an older release")
		w.Exec(`UPDATE message_groups SET messages = REPLACE(messages, ` + newer + `, ` + known + `)`)
		w.step()
		w.wantEnds("with its own release", "ship")
	})
}

func TestAGroupGrowsByItsMembers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var w *waitApp
		grow := outbox.ConsumeTx("grow", func(ctx context.Context, tx bun.Tx, g growing) error {
			if g.Left == 0 {
				return nil
			}
			m, _ := bus.MessageFromContext(ctx)
			_, err := w.Producer.Produce(ctx, tx, growing{g.Left - 1}, outbox.Group(m.Group))
			w.wantEnds("while it grows")
			return err
		})
		w = newWaitApp(t, db, grow)
		testapp.OK(t, testapp.Second(w.Producer.Produce(t.Context(), db, growing{5}, outbox.Group(waitGroup))))
		w.whenDone(db)
		w.step()
		w.wantEnds("at the end", "ship")
	})
}

// growing is a member that produces another.
type growing struct{ Left int }

func (growing) PayloadType() string { return "growing" }

func TestPoisonedMembers(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		options []outbox.WhenDoneOption
		now     []string
		how     func(w *waitApp, s *poison.Store, ids []int64)
		then    []string
	}{
		"requeued": {nil, nil, func(w *waitApp, s *poison.Store, ids []int64) {
			w.bad = false
			testapp.OK(w.T, testapp.Second(s.Requeue(w.Context(), w.DB, ids...)))
		}, []string{"ship"}},
		"discarded": {nil, nil, func(w *waitApp, s *poison.Store, ids []int64) {
			testapp.OK(w.T, testapp.Second(s.Discard(w.Context(), w.DB, ids...)))
		}, []string{"ship"}},
		"if poisoned": {
			[]outbox.WhenDoneOption{outbox.IfPoisoned(refund{ID: "cancel"}, outbox.Header("why", "poison"))}, []string{"cancel"},
			func(w *waitApp, s *poison.Store, ids []int64) {
				w.bad = false
				testapp.OK(w.T, testapp.Second(s.Requeue(w.Context(), w.DB, ids...)))
			}, []string{"cancel"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				w := newWaitApp(t, db)
				w.bad = true
				w.members(3)
				w.whenDone(db, end.options...)
				w.step()
				w.wantEnds("with poisoned members", end.now...)
				var ids []int64
				for _, row := range w.Poisoned() {
					ids = append(ids, row.ID)
				}
				if len(ids) != 2 {
					t.Fatalf("poisoned: got %v, want 2", ids)
				}
				end.how(w, testapp.Must[*poison.Store](t)(poison.NewStore(w.Registry)), ids)
				w.step()
				w.wantEnds("then", end.then...)
			})
		})
	}
}

func TestACancelledMemberCounts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		w := newWaitApp(t, db)
		w.members(1, outbox.Delay(time.Hour))
		w.whenDone(db)
		w.step()
		w.wantEnds("while it waits")
		id := int64(w.Count(`SELECT id FROM consumer_messages`))
		testapp.OK(t, testapp.Second(w.Admin().Cancel(t.Context(), db, id)))
		w.step()
		w.wantEnds("once it is cancelled", "ship")
	})
}

// TestAMemberFromOutsideDelaysTheEnd joins a group while it could end, in a transaction that commits
// later.
func TestAMemberFromOutsideDelaysTheEnd(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"postgres": testdb.Postgres, "mariadb": testdb.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWaitApp(t, open(t))
			w.members(1, outbox.Delay(time.Hour))
			w.whenDone(w.DB)
			tx := testapp.Must[bun.Tx](t)(w.DB.BeginTx(t.Context(), nil))
			defer func() { _ = tx.Rollback() }()
			testapp.OK(t, testapp.Second(w.Producer.Produce(t.Context(), tx, order{ID: "late"}, outbox.Group(waitGroup), outbox.Delay(time.Hour))))
			id := int64(w.Count(`SELECT id FROM consumer_messages`))
			testapp.OK(t, testapp.Second(w.Admin().Cancel(t.Context(), w.DB, id)))
			w.step()
			w.wantEnds("while a member is being produced")
			testapp.OK(t, tx.Commit())
			w.step()
			w.wantEnds("while the member waits")
			w.Exec(`DELETE FROM consumer_messages`)
			w.step()
			w.wantEnds("without members", "ship")
		})
	}
}

func TestTenThousandMembers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		w := newWaitApp(t, db)
		const n = 10_000
		for range 10 {
			w.members(n / 10)
		}
		w.whenDone(db)
		first, second := w.Start(testapp.Fast()), (*testapp.Running)(nil)
		if db.Dialect().Name().String() != "sqlite" {
			second = w.Start(testapp.Fast())
		}
		testapp.Poll(t, "the end", time.Minute, 10*time.Millisecond, func() bool { return len(w.ends()) > 0 })
		first.MustStop()
		if second != nil {
			second.MustStop()
		}
		w.wantEnds("at the end", "ship")
		if got := len(w.runs); got != n+1 || w.runs[n] != "ship" {
			t.Errorf("runs: got %d, the last %q, want %d, and ship at last", got, w.runs[got-1], n+1)
		}
	})
}

func TestGroupsCheckTheirInput(t *testing.T) {
	t.Parallel()
	w := newWaitApp(t, testdb.SQLite(t))
	for name, call := range map[string]func() error{
		"an empty name": func() error {
			return testapp.Second(w.Producer.Produce(t.Context(), w.DB, order{}, outbox.Group("")))
		},
		"a name with a newline": func() error {
			return testapp.Second(w.Producer.Produce(t.Context(), w.DB, order{}, outbox.Group("a\nb")))
		},
		"another option": func() error {
			return w.Producer.WhenDone(t.Context(), w.DB, outbox.Delay(time.Second), refund{})
		},
		"a nil group": func() error { return w.Producer.WhenDone(t.Context(), w.DB, nil, refund{}) },
		"a nil option": func() error {
			return w.Producer.WhenDone(t.Context(), w.DB, outbox.Group("g"), refund{}, nil)
		},
		"two of IfPoisoned": func() error {
			return w.Producer.WhenDone(t.Context(), w.DB, outbox.Group("g"), refund{}, outbox.IfPoisoned(refund{}), outbox.IfPoisoned(refund{}))
		},
		"a group of the payload": func() error {
			return w.Producer.WhenDone(t.Context(), w.DB, outbox.Group("g"), refund{}, outbox.Group("h"))
		},
	} {
		if err := call(); !errors.Is(err, bus.ErrInvalidOption) {
			t.Errorf("%s: got %v, want %v", name, err, bus.ErrInvalidOption)
		}
	}
	err := w.Producer.WhenDone(t.Context(), w.DB, outbox.Group("g"), refund{}, outbox.IfPoisoned(unknown{}))
	if !errors.Is(err, bus.ErrNoConsumer) {
		t.Errorf("a payload without a consumer: got %v, want %v", err, bus.ErrNoConsumer)
	}
	if n := w.Count(`SELECT count(*) FROM message_groups`); n != 0 {
		t.Errorf("groups: got %d, want none", n)
	}
}

// unknown is a payload without a consumer.
type unknown struct{}

func (unknown) PayloadType() string { return "unknown" }
