package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func keepCases() []testCase {
	return []testCase{
		{"a settle keeps what it removes", keepSettled},
		{"a settle of many keeps of each what it has", keepMany},
		{"a settle of many that are alike keeps each", keepAlike},
		{"a settle that is sent twice keeps a message once", keepTwice},
		{"a settle after the lease keeps nothing", keepLost},
		{"a result of a lost claim keeps nothing beside one that counts", keepBesideLost},
		{"a transaction that is rolled back keeps nothing", keepRolledBack},
		{"what is kept is listed by each filter, the newest first", keepListed},
		{"a scan ends after its messages and goes on there", keepScanned},
		{"messages are forgotten when their time is over, some at a time", keepForgotten},
		{"a repetition is a message of its own", keepRepeated},
	}
}

// kept returns a done result that keeps the message for an hour.
func (k *kit) kept(c store.Claim, id int64) store.Result {
	k.Helper()
	m := k.row(id)
	return store.Result{Claim: c.ID, Message: id, Outcome: store.Done, Kept: &store.Kept{
		ID: id, MessageID: m.MessageID, ConsumerType: m.Consumer, PayloadType: m.PayloadType, Payload: &m.Payload,
		Headers:  `{"h":"it\u2019s"}`,
		OrderKey: "key", CreatedAt: epoch(), Attempts: 2, Outcome: "done", Version: "v1", StartedAt: epoch().Add(time.Second),
		Took: 1500 * time.Microsecond, For: time.Hour,
	}}
}

// consumed lists kept messages.
func (k *kit) consumed(f store.ConsumedFilter) (ids []int64) {
	k.Helper()
	page, err := k.store.Consumed.List(k.ctx, k.db, f, 100, 0, false)
	k.must("list", err)
	return store.Each(page.Rows, func(c store.Consumed) int64 { return c.ID })
}

func keepSettled(k *kit) {
	ids := k.add("c", 3)
	c := k.take("a", "c", ids...)
	before := k.row(ids[0])
	k.pass(time.Minute)
	done := k.kept(c, ids[0])
	settled := k.settle("a", done, store.Result{Claim: c.ID, Message: ids[1], Outcome: store.Failed})
	equal(k, "settled", settled.Applied, 2)
	equal(k, "messages", k.pending(), ids[1:])
	page, err := k.store.Consumed.List(k.ctx, k.db, store.ConsumedFilter{}, 10, 0, true)
	k.must("list", err)
	if len(page.Rows) != 1 {
		k.Fatalf("consumed: got %+v, want one", page.Rows)
	}
	got := page.Rows[0]
	equal(k, "times", []string{span(got.CreatedAt.Time), span(got.StartedAt.Time), span(got.FinishedAt.Time), span(got.ExpiresAt.Time)},
		[]string{span(epoch()), span(epoch().Add(time.Second)), span(epoch().Add(time.Minute)), span(epoch().Add(time.Hour + time.Minute))})
	got.CreatedAt, got.StartedAt, got.FinishedAt, got.ExpiresAt = store.Moment{}, store.Moment{}, store.Moment{}, store.Moment{}
	equal(k, "consumed", got, store.Consumed{
		ID: ids[0], MessageID: before.MessageID, ConsumerType: "c", PayloadType: payload, Payload: []byte("{}"),
		Headers:  []byte(done.Kept.Headers),
		OrderKey: "key", Attempts: 2, Outcome: "done", Version: "v1", RunMicros: 1500, PayloadKept: true,
	})
}

// keepMany settles as many as are written as columns, where a database does that. No two rows that follow each other
// have the same values.
func keepMany(k *kit) {
	ids := k.add("c", 24)
	c := k.take("a", "c", ids...)
	var results []store.Result
	var want []store.Consumed
	payloads := []string{"", "NULL", `{"a":"\\ \" '{}, ☂"}`, "{}"}
	for i, id := range ids {
		r := k.kept(c, id)
		r.Kept.Payload = &payloads[i/2%4]
		r.Kept.ConsumerType = []string{"c", "d"}[i%2]
		r.Kept.OrderKey, r.Kept.AnyOrder = []string{"", "'k'", "NULL"}[i%3], i%3 == 1
		r.Kept.Attempts, r.Kept.For = i%3, time.Duration(i)*time.Hour
		if i%2 == 0 {
			r.Kept.Payload, r.Kept.Headers, r.Kept.StartedAt, r.Kept.Took = nil, "", time.Time{}, 0
			r.Kept.Outcome, r.Kept.Reason = "discarded", `no "room", 'sorry'`
		}
		results = append(results, r)
		row := store.Consumed{
			ID: id, MessageID: r.Kept.MessageID, ConsumerType: r.Kept.ConsumerType, PayloadType: payload, OrderKey: r.Kept.OrderKey,
			AnyOrder: r.Kept.AnyOrder, Attempts: r.Kept.Attempts, Outcome: r.Kept.Outcome, Reason: r.Kept.Reason, Version: "v1",
			RunMicros: r.Kept.Took.Microseconds(), PayloadKept: r.Kept.Payload != nil, ExpiresAt: moment(epoch().Add(r.Kept.For)),
			CreatedAt: moment(epoch()), FinishedAt: moment(epoch()), StartedAt: moment(r.Kept.StartedAt),
		}
		if r.Kept.Payload != nil {
			row.Payload, row.Headers = []byte(*r.Kept.Payload), []byte(r.Kept.Headers)
		}
		want = append(want, row)
	}
	equal(k, "settled", k.settle("a", results...).Applied, len(ids))
	page, err := k.store.Consumed.List(k.ctx, k.db, store.ConsumedFilter{}, 100, 0, true)
	k.must("list", err)
	slices.Reverse(page.Rows)
	equal(k, "rows", len(page.Rows), len(want))
	for i, got := range page.Rows {
		for _, m := range []*store.Moment{&got.CreatedAt, &got.StartedAt, &got.FinishedAt, &got.ExpiresAt} {
			*m = moment(m.Time)
		}
		equal(k, fmt.Sprint("row ", i), got, want[i])
	}
}

func keepAlike(k *kit) {
	ids := k.add("c", 8)
	c := k.take("a", "c", ids...)
	k.settle("a", store.Each(ids, func(id int64) store.Result {
		r := k.kept(c, id)
		r.Kept = &store.Kept{ID: id, MessageID: r.Kept.MessageID, ConsumerType: "c", CreatedAt: epoch(), Outcome: "done", For: time.Hour}
		return r
	})...)
	slices.Reverse(ids)
	equal(k, "consumed", k.consumed(store.ConsumedFilter{}), ids)
}

// moment is an instant that can be compared.
func moment(t time.Time) store.Moment {
	if t.IsZero() {
		return store.Moment{}
	}
	return store.Moment{Time: t.UTC()}
}

func keepTwice(k *kit) {
	ids := k.add("c", 2)
	c := k.take("a", "c", ids...)
	done := k.kept(c, ids[0])
	k.settle("a", done)
	k.settle("a", done)
	equal(k, "consumed", k.consumed(store.ConsumedFilter{}), ids[:1])
	equal(k, "messages", k.pending(), ids[1:])
}

func keepLost(k *kit) {
	ids := k.add("c", 1)
	c := k.take("a", "c", ids...)
	done := k.kept(c, ids[0])
	k.pass(lease + time.Second)
	k.recover(100)
	equal(k, "settled", k.settle("a", done), store.Settled{})
	equal(k, "consumed", k.consumed(store.ConsumedFilter{}), nil)
	equal(k, "messages", k.pending(), ids)
}

// keepBesideLost settles a run whose claim is lost together with the next run of its message in the same process.
func keepBesideLost(k *kit) {
	ids := k.add("c", 1)
	lost := k.take("a", "c", ids...)
	done := k.kept(lost, ids[0])
	k.must("disclaim", k.store.Claims.Disclaim(k.ctx, k.db, "a", []int64{lost.ID}))
	next := k.take("a", "c", ids...)
	equal(k, "settled", k.settle("a", done, store.Result{Claim: next.ID, Message: ids[0], Outcome: store.Failed}).Applied, 1)
	equal(k, "consumed", k.consumed(store.ConsumedFilter{}), nil)
	next = k.take("a", "c", ids...)
	equal(k, "settled again", k.settle("a", done, k.kept(next, ids[0])).Applied, 1)
	equal(k, "consumed at last", k.consumed(store.ConsumedFilter{}), ids)
}

func keepRolledBack(k *kit) {
	ids := k.add("c", 1)
	c := k.take("a", "c", ids...)
	done := k.kept(c, ids[0])
	broken := errors.New("broken")
	err := k.inTx(func(ctx context.Context, tx bun.Tx) error {
		if err := k.store.Consumed.Keep(ctx, tx, []*store.Kept{done.Kept}); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) {
		k.Fatalf("transaction: got error %v, want %v", err, broken)
	}
	equal(k, "consumed", k.consumed(store.ConsumedFilter{}), nil)
}

// keepThree keeps three messages, one each minute.
func (k *kit) keepThree() []int64 {
	k.Helper()
	ids := k.add("c", 3)
	c := k.take("a", "c", ids...)
	for i, id := range ids {
		r := k.kept(c, id)
		r.Kept.OrderKey = []string{"one", "two", ""}[i]
		r.Kept.Outcome = []string{"done", "discarded", "expired"}[i]
		r.Kept.Version = []string{"v1", "v2", ""}[i]
		k.pass(time.Second)
		k.settle("a", r)
	}
	return ids
}

func keepListed(k *kit) {
	ids := k.keepThree()
	equal(k, "all", k.consumed(store.ConsumedFilter{}), []int64{ids[2], ids[1], ids[0]})
	at := func(seconds int) time.Time { return epoch().Add(time.Duration(seconds) * time.Second) }
	header := []string{`"h":"it\u2019s"`}
	for name, one := range map[string]struct {
		filter store.ConsumedFilter
		want   []int64
	}{
		"id":              {store.ConsumedFilter{IDs: ids[1:2]}, ids[1:2]},
		"consumer":        {store.ConsumedFilter{Consumer: "c", Outcome: "done"}, ids[:1]},
		"other consumer":  {store.ConsumedFilter{Consumer: "d"}, nil},
		"key":             {store.ConsumedFilter{Key: "two"}, ids[1:2]},
		"outcome":         {store.ConsumedFilter{Outcome: "expired"}, ids[2:]},
		"version":         {store.ConsumedFilter{Version: "v2"}, ids[1:2]},
		"another version": {store.ConsumedFilter{Version: "v"}, nil},
		"times":           {store.ConsumedFilter{FinishedAfter: at(1), FinishedBefore: at(3)}, ids[1:2]},
		"payload type":    {store.ConsumedFilter{PayloadType: payload, Key: "one"}, ids[:1]},
		"header":          {store.ConsumedFilter{Headers: header, Key: "one"}, ids[:1]},
		"another header":  {store.ConsumedFilter{Headers: []string{`"h":"v"`}}, nil},
		"place":           {store.ConsumedFilter{BeforeAt: at(2), BeforeID: ids[1]}, ids[:1]},
		"unknown message": {store.ConsumedFilter{MessageID: uuid.Max}, nil},
	} {
		equal(k, name, k.consumed(one.filter), one.want)
	}
}

func keepScanned(k *kit) {
	ids := k.keepThree()
	f := store.ConsumedFilter{Outcome: "done"}
	page, err := k.store.Consumed.List(k.ctx, k.db, f, 10, 2, false)
	k.must("first page", err)
	equal(k, "first page", len(page.Rows), 0)
	equal(k, "more", page.More, true)
	equal(k, "place", page.ID, ids[1])
	f.BeforeAt, f.BeforeID = page.At, page.ID
	page, err = k.store.Consumed.List(k.ctx, k.db, f, 10, 2, false)
	k.must("second page", err)
	equal(k, "second page", store.Each(page.Rows, func(c store.Consumed) int64 { return c.ID }), ids[:1])
	equal(k, "more", page.More, false)
}

func keepForgotten(k *kit) {
	ids := k.keepThree()
	forget := func(want int) {
		k.Helper()
		n, err := k.store.Consumed.Forget(k.ctx, k.db, 2)
		k.must("forget", err)
		equal(k, "forgotten", n, want)
	}
	k.pass(time.Hour - time.Second)
	forget(1)
	equal(k, "consumed", k.consumed(store.ConsumedFilter{}), []int64{ids[2], ids[1]})
	k.pass(time.Hour)
	k.keepThree()
	forget(2)
	forget(0)
	equal(k, "left", len(k.consumed(store.ConsumedFilter{})), 3)
}

func keepRepeated(k *kit) {
	ids := k.keepThree()
	var before []store.Consumed
	again := uuid.Max
	k.must("repeat", k.inTx(func(ctx context.Context, tx bun.Tx) (err error) {
		if before, err = k.store.Consumed.LockForRepeat(ctx, tx, ids[:1]); err != nil {
			return err
		}
		_, err = k.store.Consumed.Repeat(ctx, tx, before, func() uuid.UUID { return again })
		return err
	}))
	pending := k.messages()
	if len(pending) != 1 || len(before) != 1 {
		k.Fatalf("pending: got %+v after a repetition of %+v, want one", pending, before)
	}
	got := pending[0]
	equal(k, "message", []string{got.MessageID.String(), got.Consumer, got.PayloadType, got.Payload, got.InsertID},
		[]string{again.String(), "c", payload, "{}", null})
	equal(k, "headers", store.Headers([]byte(got.Headers)), map[string]string{
		"h": "it\u2019s", "asyncmonolith-repeats": before[0].MessageID.String(),
	})
	equal(k, "consumed", len(k.consumed(store.ConsumedFilter{})), 3)
}
