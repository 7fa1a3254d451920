package model

import (
	"context"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// What a database does where messages have keys, and consumers limits and rates.

// AnyOrder implements System.
func (d *Database) AnyOrder() bool { return d.store.AnyOrder() == nil }

// lane is that of a message with a key, or 0.
func (d *Database) lane(key Key) int64 {
	if d.orderKey[key] == "" {
		return 0
	}
	return store.Lane(d.orderKey[key])
}

// askLanes asks for messages of a consumer that goes by keys.
func (d *Database) askLanes(request store.ClaimRequest, r Request, rules Rules) store.ClaimRequest {
	name := r.Consumers[0]
	lanes := store.Lanes{
		Source: store.Source{
			Name: name, Names: []string{name}, Payloads: []string{payloadType}, PerKey: rules.PerKey, KeyRate: rules.KeyRate, Parks: rules.Parks,
		},
		Run: r.Lanes.Run, Walk: r.Lanes.Walk, Sticky: store.Each(r.Lanes.Sticky, store.Lane),
	}
	if r.Lanes.Cursor != "" {
		lanes.Cursor = store.Lane(r.Lanes.Cursor)
	}
	if len(r.After) > 0 && r.After[0] != (Place{}) {
		lanes.Hint = d.rank[r.After[0].Key]
	}
	if r.Select == store.Clean {
		request.Lanes = &lanes
	} else {
		request.Stuck = []store.Lanes{lanes}
	}
	return request
}

// Requeue implements System.
func (d *Database) Requeue(key Key) (pending bool) {
	must(d.db.RunInTx(d.ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		rows, err := d.store.Poison.Lock(ctx, tx, store.PoisonFilter{IDs: []int64{d.ids[key]}}, 1)
		if err != nil {
			return err
		}
		requeued, err := d.store.Poison.Requeue(ctx, tx, rows, store.Requeuing{})
		pending = len(requeued) == 1
		return err
	}))
	return pending
}

// Discard implements System.
func (d *Database) Discard(key Key) {
	_, err := d.store.Poison.Delete(d.ctx, d.db, []int64{d.ids[key]})
	must(err)
}

// slots is the name of the limit.
const slots = "limit"

// TakeSlots implements System.
func (d *Database) TakeSlots(owner string, wanted int) []int {
	taken, err := d.store.Flow.TakeSlots(d.ctx, d.db, owner, slots, Slots, wanted, Lease)
	must(err)
	return numbersOf(taken)
}

// ExtendSlots implements System.
func (d *Database) ExtendSlots(owner string, extended []int) []int {
	_, held, err := d.store.Flow.ExtendSlots(d.ctx, d.db, owner, map[string][]int{slots: extended}, Lease)
	must(err)
	return numbersOf(held)
}

// ReturnSlots implements System.
func (d *Database) ReturnSlots(owner string, returned []int) {
	must(d.store.Flow.ReturnSlots(d.ctx, d.db, owner, slots, returned))
}

func numbersOf(held []store.Slot) (numbers []int) {
	for _, slot := range held {
		numbers = append(numbers, slot.N)
	}
	slices.Sort(numbers)
	return numbers
}

// readBounds reads slots and rates.
func (d *Database) readBounds(v View) {
	var held []struct {
		N           int
		Owner       string
		LeasedUntil store.Moment
	}
	must(d.handle.NewRaw("SELECT n, owner, leased_until FROM message_slots WHERE owner <> '' AND n > 0").Scan(d.ctx, &held))
	for _, slot := range held {
		v.Slots[slot.N] = Slot{Owner: slot.Owner, Until: slot.LeasedUntil.Sub(epoch())}
	}
	var rates []struct {
		Name   string
		Lane   int64
		UsedTo store.Moment
	}
	statement := "SELECT name, 0 AS lane, used_to FROM message_rates"
	if d.AnyOrder() {
		statement += " UNION ALL SELECT name, lane, used_to FROM message_key_rates"
	}
	must(d.handle.NewRaw(statement).Scan(d.ctx, &rates))
	for _, rate := range rates {
		if used := rate.UsedTo.Sub(epoch()); used > d.elapse {
			v.Rates[lane{rate.Name, orderKeyOf(rate.Lane)}] = used
		}
	}
}

// orderKeyOf is the key that has the lane, or "" of 0.
func orderKeyOf(lane int64) string {
	for _, orderKey := range orderKeys() {
		if store.Lane(orderKey) == lane {
			return orderKey
		}
	}
	if lane != 0 {
		panic("a lane of no key")
	}
	return ""
}

// instantOf is the place of a message whose key has no order.
func instantOf(rank int64) time.Duration { return time.UnixMicro(rank).Sub(epoch()) }
