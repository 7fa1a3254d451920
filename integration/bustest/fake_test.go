package bustest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// producing is what the fake and the producer have in common.
type producing interface {
	ProduceMany(ctx context.Context, db bus.Handle, items ...outbox.Item) ([]outbox.Receipt, error)
	RunInTx(ctx context.Context, db *bun.DB, fn func(ctx context.Context, tx bun.Tx) error) error
}

// A call produces items, in a transaction of its own that is rolled back or not.
type call struct {
	items      []outbox.Item
	rolledBack bool
}

var errRolledBack = errors.New("rolled back")

// makes does the calls and describes their receipts.
func makes(ctx context.Context, p producing, db *bun.DB, calls []call) (said []string) {
	for _, c := range calls {
		var receipts []outbox.Receipt
		err := p.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) (err error) {
			if receipts, err = p.ProduceMany(ctx, tx, c.items...); err == nil && c.rolledBack {
				err = errRolledBack
			}
			return err
		})
		text := fmt.Sprint("invalid ", errors.Is(err, bus.ErrInvalidOption), ", rolled back ", errors.Is(err, errRolledBack))
		for _, r := range receipts {
			text += fmt.Sprintf("; %d enqueued, %d duplicates", r.Enqueued, r.Duplicates)
		}
		said = append(said, text)
	}
	return said
}

// TestTheFakeAgreesWithTheProducer on receipts, errors, and what is pending in the end.
func TestTheFakeAgreesWithTheProducer(t *testing.T) {
	t.Parallel()
	placed := func(id string, options ...outbox.Option) outbox.Item {
		return outbox.Item{Payload: OrderPlaced{id}, Options: options}
	}
	charged := func(id string, options ...outbox.Option) outbox.Item {
		return outbox.Item{Payload: OrderCharged{id}, Options: options}
	}
	calls := func(items ...outbox.Item) (all []call) {
		for _, item := range items {
			all = append(all, call{items: []outbox.Item{item}})
		}
		return all
	}
	once, replace := outbox.InsertID("k"), outbox.InsertID("k", outbox.Replace())
	debounce := outbox.InsertID("k", outbox.Debounce(time.Second, time.Minute))
	past := outbox.DeliverBy(time.Now().Add(time.Minute), bus.Discarded)
	for name, of := range map[string][]call{
		"a duplicate":                      calls(placed("1", once), placed("2", once)),
		"another consumer":                 calls(placed("1", once), charged("2", once), charged("3", replace)),
		"replaced twice":                   calls(placed("1", replace), placed("2", replace), placed("3", replace)),
		"replaced, then rolled back":       {{items: []outbox.Item{placed("1", once)}}, {[]outbox.Item{placed("2", replace)}, true}},
		"replaced in one call":             {{items: []outbox.Item{placed("1", replace), placed("2", replace)}}},
		"replaced in one, with a priority": {{items: []outbox.Item{placed("1", replace, outbox.Priority(bus.High)), placed("2", replace)}}},
		"replaced in one, and a duplicate": {{items: []outbox.Item{placed("1", once), placed("2", replace), placed("3", once)}}},
		"due after its deadline":           calls(placed("1", past, outbox.Delay(time.Hour)), placed("2", outbox.Delay(time.Second), past)),
		"debounced, with a delay": calls(placed("1", outbox.Delay(time.Hour), debounce),
			placed("2", debounce, outbox.Delay(time.Hour))),
		"debounced, with a delay of zero": calls(placed("1", outbox.Delay(0), debounce), placed("2", debounce, outbox.Delay(0))),
		"two policies, and an id for twice": calls(placed("1", once, once),
			placed("2", outbox.InsertID("k", outbox.Replace(), outbox.UniqueFor(time.Hour)))),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				a := testapp.New(t, db,
					bus.Consume("ship", func(context.Context, OrderPlaced) error { return nil }, bus.Prioritized(time.Minute)),
					bus.Consume("mail", func(context.Context, OrderPlaced) error { return nil }),
					bus.Consume("book", func(context.Context, OrderCharged) error { return nil }))
				fake := &bustest.FakeProducer{Registry: a.Registry}
				want, got := makes(t.Context(), a.Producer, db, of), makes(t.Context(), fake, nil, of)
				if !slices.Equal(got, want) {
					t.Errorf("got of the fake:\n%s\nwant, as of the producer:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				var pending []string
				for _, row := range a.Pending() {
					pending = append(pending, string(row.Payload))
				}
				var kept []string
				for _, o := range bustest.Payloads[OrderPlaced](t, fake) {
					text, _ := (bus.JSON{}).Encode(o)
					kept = append(kept, string(text), string(text)) // of two consumers
				}
				for _, o := range bustest.Payloads[OrderCharged](t, fake) {
					text, _ := (bus.JSON{}).Encode(o)
					kept = append(kept, string(text))
				}
				slices.Sort(pending)
				slices.Sort(kept)
				if !slices.Equal(kept, pending) {
					t.Errorf("kept by the fake: got %q, want %q", kept, pending)
				}
			})
		})
	}
}
