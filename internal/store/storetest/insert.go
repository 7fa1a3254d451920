package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func insertCases() []testCase {
	return []testCase{
		{"every consumer of a message gets a row", insertFanOut},
		{"a large batch is cut into statements and keeps its order", insertMany},
		{"rows are written alike in batches of any size, alike or not", insertSizes},
		{"a delay counts from the clock", insertDelay},
		{"a fixed instant is kept to the microsecond", insertInstants},
		{"what has been available since before 1970 is claimed", insertLongAgo},
		{"an insert id is written once per batch", insertIDInBatch},
		{"an insert id is written once while pending", insertIDPending},
		{"insert ids are asked for under former names, in batches of any size", insertIDFormer},
		{"an insert id is per consumer", insertIDPerConsumer},
		{"an insert id stays taken while the message is not gone", insertIDTaken},
		{"an insert id is free once the message is done", insertIDFree(store.Done)},
		{"an insert id is free once the message is poisoned", insertIDFree(store.Poison)},
		{"overlapping batches insert each id once and do not deadlock", insertIDContended},
		{"rows belong to the caller's transaction", insertInTransaction},
	}
}

func insertFanOut(k *kit) {
	var rows []store.NewMessage
	var ids []uuid.UUID
	for i := range 3 {
		m := k.message("")
		m.PayloadType, m.Payload, m.Headers = fmt.Sprint("type ", i), fmt.Sprint("payload ", i), fmt.Sprint("headers ", i)
		ids = append(ids, m.MessageID)
		for c := range i + 1 {
			m.ConsumerType = fmt.Sprint("consumer ", c)
			rows = append(rows, m)
		}
	}
	equal(k, "rows written", k.insert(slices.Clone(rows)...), map[uuid.UUID]int{ids[0]: 1, ids[1]: 2, ids[2]: 3})
	got := k.messages()
	if len(got) != len(rows) {
		k.Fatalf("rows: got %d, want %d", len(got), len(rows))
	}
	for i := range got {
		got[i].ID = 0
	}
	for _, m := range rows {
		want := row{
			MessageID: m.MessageID, Consumer: m.ConsumerType, PayloadType: m.PayloadType, Payload: m.Payload, Headers: m.Headers,
			InsertID: null, Created: "0s", Available: "0s", Errors: null, Poisoned: "never",
		}
		if !slices.Contains(got, want) {
			k.Errorf("rows:\n got %+v\nwant among them %+v", got, want)
		}
	}
}

func insertMany(k *kit) {
	const n = 1100
	rows := make([]store.NewMessage, n)
	for i := range rows {
		rows[i] = k.message("c")
		rows[i].Payload = fmt.Sprint(i)
	}
	if got := store.Statements(rows); got < 2 {
		k.Errorf("statements: got %d, want several", got)
	}
	equal(k, "message ids", len(k.insert(rows...)), n)
	messages := k.messages()
	equal(k, "rows", len(messages), n)
	for i, m := range messages {
		if m.Payload != fmt.Sprint(i) {
			k.Fatalf("row %d: got payload %s, want the order of the batch", i, m.Payload)
		}
	}
}

// insertSizes: a database may write few rows in another way than many, and once what all
// of them have in common.
func insertSizes(k *kit) {
	k.pass(time.Minute)
	var want []row
	for _, n := range []int{1, 2, 6, 7, 40} {
		for _, differ := range []bool{false, true} {
			rows := make([]store.NewMessage, n)
			for i := range rows {
				m := k.message("c")
				m.Payload, m.Headers, m.Delay = nasty()[n%len(nasty())], nasty()[0], time.Second
				if differ {
					m.ConsumerType, m.PayloadType = fmt.Sprint("consumer ", i%3), nasty()[i%5]
					m.Payload, m.Headers, m.Delay = []string{nasty()[i%len(nasty())], ""}[i%2], []string{"", m.Headers}[i%2], time.Duration(
						i%4,
					)*time.Second
				}
				wanted := row{MessageID: m.MessageID, Consumer: m.ConsumerType, PayloadType: m.PayloadType, Payload: m.Payload, Headers: m.Headers,
					InsertID: null, Created: k.now(), Available: k.in(m.Delay), Errors: null, Poisoned: "never"}
				if m.Headers == "" {
					wanted.Headers = null
				}
				if differ && i%4 == 3 {
					m.Delay, m.AvailableAt, wanted.Available = 0, epoch().Add(time.Hour), span(epoch().Add(time.Hour))
				}
				rows[i], want = m, append(want, wanted)
			}
			k.insert(rows...)
		}
	}
	got := k.messages()
	slices.SortFunc(got, func(a, b row) int { return bytes.Compare(a.MessageID[:], b.MessageID[:]) })
	equal(k, "rows", len(got), len(want))
	for i := range got {
		got[i].ID = 0
		equal(k, fmt.Sprintf("row %d", i), got[i], want[i])
	}
}

func insertDelay(k *kit) {
	k.pass(time.Hour)
	delays := []time.Duration{0, time.Microsecond, 1500 * time.Millisecond, 20 * 365 * 24 * time.Hour}
	var rows []store.NewMessage
	for _, d := range delays {
		m := k.message("c")
		m.Delay = d
		rows = append(rows, m)
	}
	k.insert(rows...)
	for i, m := range k.messages() {
		equal(k, fmt.Sprintf("created with delay %s", delays[i]), m.Created, k.now())
		equal(k, fmt.Sprintf("available with delay %s", delays[i]), m.Available, k.in(delays[i]))
	}
}

// instants inserts messages that are available at fixed instants, in that order.
func (k *kit) instants(instants ...time.Time) []row {
	k.Helper()
	var rows []store.NewMessage
	for _, at := range instants {
		m := k.message("c")
		m.AvailableAt = at
		rows = append(rows, m)
	}
	k.insert(rows...)
	return k.messages()
}

func insertInstants(k *kit) {
	instants := []time.Time{
		epoch().Add(-time.Microsecond),
		epoch().Add(-time.Hour).Add(789 * time.Nanosecond),
		time.Date(2030, 1, 1, 12, 0, 0, 5000, time.FixedZone("east", 5*3600+45*60)),
		time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC),
		time.Unix(0, 0),
		time.Date(1969, 7, 20, 20, 17, 40, 1000, time.UTC),
		time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC),
	}
	for i, m := range k.instants(instants...) {
		equal(k, fmt.Sprintf("available at %s", instants[i]), m.Available, span(instants[i].Truncate(time.Microsecond)))
		equal(k, fmt.Sprintf("created at %s", instants[i]), m.Created, "0s")
	}
}

// insertLongAgo: what is due must be found, however long it has been due.
func insertLongAgo(k *kit) {
	k.instants(time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC), time.Unix(-1, 0), time.Unix(0, 0), time.Unix(1, 0))
	equal(k, "messages claimed", idsOf(k.claim(request("a", want("c", 10)))), k.pending())
}

// keyed makes a row with an insert id.
func (k *kit) keyed(consumer, insertID string) store.NewMessage {
	m := k.message(consumer)
	m.InsertID = insertID
	return m
}

func insertIDInBatch(k *kit) {
	rows := []store.NewMessage{k.keyed("c", "b"), k.message("c"), k.keyed("c", "a"), k.keyed("c", "b"), k.message("c"), k.keyed("c", "b")}
	written := k.insert(slices.Clone(rows)...)
	for i, want := range []int{1, 1, 1, 0, 1, 0} {
		equal(k, fmt.Sprintf("rows of message %d", i), written[rows[i].MessageID], want)
	}
	var ids []string
	for _, m := range k.messages() {
		ids = append(ids, m.InsertID)
	}
	slices.Sort(ids)
	equal(k, "insert ids", ids, []string{null, null, "a", "b"})
}

func insertIDPending(k *kit) {
	k.insert(k.keyed("c", "key"))
	first := k.messages()
	second := k.keyed("c", "key")
	second.Payload, second.Delay = "newer", time.Hour
	if written := k.insert(second); written[second.MessageID] != 0 {
		k.Errorf("rows of the second message: got %d, want 0", written[second.MessageID])
	}
	equal(k, "messages", k.messages(), first)
}

func insertIDFormer(k *kit) {
	for _, n := range []int{1, 3, 4, 40} {
		rows := make([]store.NewMessage, n)
		for i := range rows {
			rows[i] = k.keyed("new", fmt.Sprint(n, i))
			rows[i].FormerConsumers = []string{"old"}
		}
		before := k.keyed("old", rows[0].InsertID)
		k.insert(before)
		equal(k, fmt.Sprintf("messages written of %d, one of which is pending under the former name", n), len(k.insert(rows...)), n-1)
	}
}

func insertIDPerConsumer(k *kit) {
	first := k.keyed("one", "key")
	third := first
	third.ConsumerType = "three"
	if written := k.insert(first, third); written[first.MessageID] != 2 {
		k.Errorf("rows of a message for two consumers: got %d, want 2", written[first.MessageID])
	}
	both := k.keyed("one", "key")
	other := both
	other.ConsumerType = "two"
	if written := k.insert(both, other); written[both.MessageID] != 1 {
		k.Errorf("rows of a message for a consumer with the key pending and one without: got %d, want 1", written[both.MessageID])
	}
	equal(k, "messages", len(k.messages()), 3)
}

func insertIDTaken(k *kit) {
	k.insert(k.keyed("c", "key"))
	id := k.pending()[0]
	refused := func(when string) {
		k.Helper()
		if m := k.keyed("c", "key"); k.insert(m)[m.MessageID] != 0 {
			k.Errorf("insert while the message %s: got a row, want none", when)
		}
	}
	c := k.take("a", "c", id)
	refused("is claimed")
	k.settle("a", results(c, store.Failed, id)...)
	refused("waits for its retry")
	k.crash("c", 1)
	refused("waits after a crash")
}

func insertIDFree(outcome store.Outcome) func(*kit) {
	return func(k *kit) {
		k.insert(k.keyed("c", "key"))
		id := k.pending()[0]
		k.settle("a", results(k.take("a", "c", id), outcome, id)...)
		again := k.keyed("c", "key")
		if written := k.insert(again); written[again.MessageID] != 1 {
			k.Errorf("rows: got %d, want 1", written[again.MessageID])
		}
		if got := k.pending(); len(got) != 1 || got[0] <= id {
			k.Errorf("messages: got %v, want one with a higher id than %d", got, id)
		}
	}
}

func insertIDContended(k *kit) {
	const writers, keys = 8, 60
	rounds := 1
	if k.store.RowLocks() {
		rounds = 8 // otherwise no transaction can hold one key and wait for another
	}
	for round := range rounds {
		batches := make([][]store.NewMessage, writers)
		for i := range batches {
			for key := range keys { // each from another key on, each second one backwards
				key = (key + i*3) % keys
				if i%2 == 0 {
					key = keys - 1 - key
				}
				batches[i] = append(batches[i], k.keyed("c", fmt.Sprint("key ", round, key)))
			}
		}
		errs := together(writers, func(i int) error {
			return k.inTx(func(ctx context.Context, tx bun.Tx) error {
				_, err := k.store.Outbox.Insert(ctx, tx, batches[i])
				return err
			})
		})
		for _, err := range errs {
			k.Errorf("insert: got error %v, want none", err)
		}
	}
	equal(k, "messages", len(k.pending()), rounds*keys)
}

func insertInTransaction(k *kit) {
	undo := errors.New("undo")
	insert := func(outcome error) error {
		return k.inTx(func(ctx context.Context, tx bun.Tx) error {
			if _, err := k.store.Outbox.Insert(ctx, tx, []store.NewMessage{k.message("c"), k.keyed("c", "key")}); err != nil {
				return err
			}
			return outcome
		})
	}
	if err := insert(undo); !errors.Is(err, undo) {
		k.Fatalf("transaction: got error %v, want %v", err, undo)
	}
	equal(k, "messages after rolling back", k.pending(), nil)
	k.must("transaction", insert(nil))
	equal(k, "messages after committing", len(k.pending()), 2)
}
