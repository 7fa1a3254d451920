package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// laneStats counts what is ready, delayed and held of two consumers.
func laneStats(k *kit) {
	k.insert(k.ofKey("c", "a", 0), k.ofKey("c", "a", 1), k.ofKey("c", "b", 0), k.ofKey("d", "a", 0))
	late := k.ofKey("c", "e", 0)
	late.Delay = time.Hour
	k.insert(late, k.message("c"))
	held := k.claim(ofLanes("o", 1, store.Lanes{Source: source("c"), Run: 1}))
	equal(k, "held", len(held.Messages), 1)
	rows, err := k.store.Reports.Stats(k.ctx, k.db, []string{"c", "d", "none"})
	k.must("stats", err)
	var got [][3]int64
	for _, row := range rows {
		got = append(got, [3]int64{row.Ready, row.Delayed, row.Leased})
	}
	equal(k, "ready, delayed, leased", got, [][3]int64{{3, 1, 1}, {1, 0, 0}, {0, 0, 0}})
	for i, old := range []bool{true, true, false} {
		equal(k, "there is an oldest", !rows[i].OldestReady.IsZero(), old)
	}
	names, err := k.store.Pending.StoredConsumers(k.ctx, k.db)
	k.must("consumers", err)
	slices.Sort(names)
	equal(k, "consumers", names, []string{"c", "d"})
	keyed, err := k.store.Claims.KeyedConsumers(k.ctx, k.db)
	k.must("consumers of keys", err)
	equal(k, "consumers of keys", keyed, []string{"c", "d"})
}

// laneGate holds the gate of a consumer, and that of one whose name it would have to be looked
// for behind, while others produce, settle, recover, requeue and look.
func laneGate(k *kit) {
	if k.db.Stats().MaxOpenConnections == 1 || !k.store.RowLocks() {
		return
	}
	lanes := store.Lanes{Source: source("c"), Run: 1}
	k.insert(k.ofKey("b", "a", 0), k.ofKey("c", "a", 0), k.ofKey("c", "b", 0), k.ofKey("c", "e", 0), k.ofKey("d", "a", 0))
	dead := k.claim(store.ClaimRequest{Owner: "dead", Lease: -time.Second, Limit: 1, MaxBytes: ample, Solo: true, Lanes: &lanes})
	equal(k, "claimed by who dies", len(dead.Messages), 1)
	c := k.claim(ofLanes("o", 2, lanes))
	equal(k, "claimed", len(c.Messages), 2)
	equal(k, "claimed of another", len(k.claim(ofLanes("o", 1, store.Lanes{Source: source("d", "b"), Run: 1})).Messages), 0)
	ctx, cancel := context.WithTimeout(k.ctx, 20*time.Second)
	defer cancel()
	err := k.inTx(func(_ context.Context, tx bun.Tx) error {
		var parks bool
		err := tx.NewRaw("SELECT parks FROM ? WHERE consumer_type = 'c' FOR UPDATE", k.table("message_gates")).Scan(ctx, &parks)
		k.must("lock the gate", err)
		_, err = k.store.Outbox.Insert(ctx, k.db, []store.NewMessage{k.ofKey("c", "a", 1), k.ofKey("b", "e", 0), k.ofKey("d", "e", 0)})
		k.must("produce", err)
		for i, outcome := range []store.Outcome{store.Done, store.Poison} {
			m := c.Messages[i]
			_, err = k.store.Claims.Settle(
				ctx, k.db, "o", lease,
				[]store.Result{{Claim: c.ID, Message: m.ID, Lane: m.Lane, Outcome: outcome, Parks: true, Reason: "r"}},
			)
			k.must("settle", err)
		}
		recovered, err := k.store.Claims.Recover(ctx, k.db, 1)
		k.must("recover", err)
		equal(k, "recovered", recovered.Poisoned, 1)
		_, err = k.store.Claims.PollLanes(ctx, k.db, []store.LaneLook{{Source: source("c")}}, true)
		k.must("poll", err)
		_, err = k.store.Claims.Claim(ctx, k.db, ofLanes("o", 1, store.Lanes{Source: source("d", "b"), Run: 1}))
		k.must("claim of another", err)
		return nil
	})
	k.must("release the gate", err)
}

// laneRemovals removes messages without keys, in a transaction that is not over yet, while
// others with keys are produced, claimed and settled.
func laneRemovals(k *kit) {
	if k.db.Stats().MaxOpenConnections == 1 || !k.store.RowLocks() {
		return
	}
	plain := k.add("plain", 3)
	k.insert(k.ofKey("c", "a", 0))
	ctx, cancel := context.WithTimeout(k.ctx, 20*time.Second)
	defer cancel()
	err := k.inTx(func(_ context.Context, tx bun.Tx) error {
		_, err := k.store.Claims.Remove(ctx, tx, store.Session{}, plain...)
		k.must("remove", err)
		_, err = k.store.Outbox.Insert(ctx, k.db, []store.NewMessage{k.ofKey("c", "a", 1), k.ofKey("c", "b", 0)})
		k.must("produce", err)
		c, err := k.store.Claims.Claim(ctx, k.db, ofLanes("o", 10, store.Lanes{Source: source("c"), Run: 10}))
		k.must("claim", err)
		equal(k, "claimed", len(c.Messages), 3)
		_, err = k.store.Claims.Finish(ctx, k.db, "o", []int64{c.ID})
		k.must("finish", err)
		return nil
	})
	k.must("end the transaction", err)
	equal(k, "messages left", k.messages(), nil)
}

// laneReplaced replaces a large message of a key before its payload is read.
func laneReplaced(k *kit) {
	if k.db.Stats().MaxOpenConnections == 1 || !k.store.RowLocks() {
		return
	}
	large := k.ofKey("c", "a", 1)
	large.InsertID, large.Replace = "large", true
	large.Payload = fmt.Sprintf(`{"key":"a","n":1,"text":%q}`, strings.Repeat("x", 10_000))
	k.insert(k.ofKey("c", "a", 0))
	_, err := k.store.Outbox.Insert(k.ctx, k.db, []store.NewMessage{large})
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	k.must("insert", err)
	k.insert(k.ofKey("c", "a", 2), k.ofKey("c", "b", 0))
	hooked := k.db.WithQueryHook(&beforeOnce{match: "SELECT id, payload, headers, errors", do: func() {
		again := large
		again.MessageID = uuid.New()
		_, err := k.store.Outbox.Insert(k.ctx, k.db, []store.NewMessage{again})
		k.must("replace", err)
	}})
	c, err := k.store.Claims.Claim(k.ctx, hooked, ofLanes("o", 10, store.Lanes{Source: source("c"), Run: 10}))
	k.must("claim", err)
	var got []string
	for _, m := range c.Messages {
		got = append(got, string(m.Payload))
	}
	slices.Sort(got)
	equal(k, "claimed", got, []string{k.ofKey("c", "a", 0).Payload, k.ofKey("c", "b", 0).Payload})
	equal(k, "more to claim", c.News.Left, true)
}

// beforeOnce does something before the first query with a text in it.
type beforeOnce struct {
	match string
	do    func()
	once  sync.Once
}

func (h *beforeOnce) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	if strings.Contains(event.Query, h.match) {
		h.once.Do(h.do)
	}
	return ctx
}

func (h *beforeOnce) AfterQuery(context.Context, *bun.QueryEvent) {}

// laneRate has more keys than the rate allows messages.
func laneRate(k *kit) {
	for key := range 5 {
		k.insert(k.ofKey("c", fmt.Sprint(key), 0))
	}
	r := ofLanes("o", 5, store.Lanes{Source: source("c")})
	r.Rate = &store.Rate{Name: "c", N: 1, Per: time.Minute, Burst: 2}
	for _, want := range []int{2, 0} {
		c := k.claim(r)
		equal(k, "messages", len(c.Messages), want)
		if c.Wait != time.Minute {
			k.Errorf("wait: got %s, want 1m", c.Wait)
		}
	}
}

// laneLooks looks for what may run while each key is blocked by something else, and then as each is free.
func laneLooks(k *kit) {
	looks := []store.LaneLook{{Source: source("c"), Blocked: true}}
	runs := func(what string, want bool) {
		k.Helper()
		states, err := k.store.Claims.PollLanes(k.ctx, k.db, looks, false)
		k.must("look", err)
		equal(k, what+": it finds something", len(states) > 0, want)
	}
	late, unknown := k.ofKey("c", "late", 0), k.ofKey("c", "unknown", 0)
	late.Delay, unknown.PayloadType = time.Minute, "unknown"
	k.insert(k.ofKey("c", "parked", 0), k.ofKey("c", "held", 0))
	c := k.claim(ofLanes("o", 2, store.Lanes{Source: source("c")}))
	equal(k, "claimed", len(c.Messages), 2)
	k.insert(k.ofKey("c", "parked", 1), k.ofKey("c", "held", 1), late, k.ofKey("c", "late", 1), unknown, k.ofKey("c", "unknown", 1))
	parked, held := c.Messages[0], c.Messages[1]
	k.settle("o", store.Result{Claim: c.ID, Message: parked.ID, Lane: parked.Lane, Outcome: store.Poison, Parks: true, Reason: "r"})
	runs("all are blocked", false)
	k.exec("DELETE FROM ?", k.table("poisoned_messages"))
	runs("the one that parked its key is gone", true)
	next := k.claim(ofLanes("o", 1, store.Lanes{Source: source("c")}))
	equal(k, "claimed", len(next.Messages), 1)
	runs("the next is claimed", false)
	k.finish("o", next.ID)
	runs("... and done", false)
	k.settle("o", store.Result{Claim: c.ID, Message: held.ID, Lane: held.Lane, Outcome: store.Done})
	k.pass(time.Minute)
	runs("the first of a key is due", true)
	k.pause("c")
	runs("it is paused", false)
}

// laneLooksAtMany has more that cannot run than a look covers, which then leaves it to a claim.
func laneLooksAtMany(k *kit) {
	var rows []store.NewMessage
	for n := range 5500 {
		m := k.ofKey("c", fmt.Sprint("late ", n%550), n/550)
		m.Delay = time.Hour
		rows = append(rows, m)
	}
	for _, test := range []struct {
		rows []store.NewMessage
		more bool
	}{{rows[:500], false}, {rows[500:], true}} {
		k.insert(test.rows...)
		states, err := k.store.Claims.PollLanes(k.ctx, k.db, []store.LaneLook{{Source: source("c"), Blocked: true}}, true)
		k.must("look", err)
		equal(k, "found", len(states) > 0, test.more)
	}
}
