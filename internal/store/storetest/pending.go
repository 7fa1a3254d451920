package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func pendingCases() []testCase {
	return []testCase{
		{"messages are listed by consumer and due time", pendingOrder},
		{"a page begins where another ended", pendingPages},
		{"every filter selects what it says", pendingFilters},
		{"a message is read with what holds it", pendingHeld},
		{"claims are listed with what is left of them", pendingClaims},
		{"stored consumers are found", pendingConsumers},
		{"messages are cancelled", pendingCancel},
		{"messages are made due at another time", pendingReschedule},
		{"what is held or missing is told and left alone", pendingHolders},
		{"a change works in the caller's transaction", pendingInTransaction},
	}
}

func (k *kit) list(f store.PendingFilter, limit int) []store.Pending {
	k.Helper()
	rows, err := k.store.Pending.List(k.ctx, k.db, f, limit)
	k.must("list", err)
	return rows
}

func idsOfPending(rows []store.Pending) (ids []int64) {
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids
}

// mixed inserts 1, which is of consumer c and has crashed, a while ago; now 2 of
// d; 3 of c in an hour; 4 of c; and 5 of c with another payload type, claimed.
func (k *kit) mixed() {
	k.Helper()
	k.add("c", 1)
	k.crash("c", 1)
	crashed := k.messages()[0].ID
	k.add("d", 1)
	later := k.message("c")
	later.Delay = time.Hour
	k.insert(later)
	k.add("c", 1)
	other := k.message("c")
	other.PayloadType = "other"
	k.insert(other)
	c := k.claim(request("a", store.Want{Consumer: "c", Payload: "other", Limit: 1}))
	equal(k, "claimed", len(c.Messages), 1)
	equal(k, "crashed first", crashed, int64(1))
}

func pendingOrder(k *kit) {
	k.mixed()
	equal(k, "everything", idsOfPending(k.list(store.PendingFilter{}, 10)), []int64{5, 1, 4, 3, 2})
	row := k.list(store.PendingFilter{}, 10)[1]
	equal(k, "payload in a list", string(row.Payload)+string(row.Headers)+row.Errors, "")
	equal(k, "crashes", row.Crashes, 1)
	equal(k, "now", span(row.Now.Time), k.now())
}

func pendingPages(k *kit) {
	k.mixed()
	k.add("c", 3)
	want := idsOfPending(k.list(store.PendingFilter{}, 100))
	for size := 1; size < len(want); size++ {
		var got []int64
		for f := (store.PendingFilter{}); ; {
			rows := k.list(f, size)
			if len(rows) == 0 {
				break
			}
			got = append(got, idsOfPending(rows)...)
			last := rows[len(rows)-1]
			f.After = store.PendingPlace{Consumer: last.ConsumerType, Payload: last.PayloadType, At: last.AvailableAfter.Time, ID: last.ID}
		}
		equal(k, fmt.Sprintf("pages of %d", size), got, want)
	}
}

func pendingFilters(k *kit) {
	k.mixed()
	keyed := k.message("e")
	keyed.InsertID = "it's"
	k.insert(keyed)
	for _, test := range []struct {
		name   string
		filter store.PendingFilter
		want   []int64
	}{
		{"insert id", store.PendingFilter{InsertID: "it's"}, []int64{6}},
		{"message id", store.PendingFilter{MessageID: keyed.MessageID}, []int64{6}},
		{"consumer", store.PendingFilter{Consumer: "c"}, []int64{5, 1, 4, 3}},
		{"a consumer with a quote", store.PendingFilter{Consumer: "it's"}, nil},
		{"payload type", store.PendingFilter{PayloadType: "other"}, []int64{5}},
		{"ready", store.PendingFilter{State: store.Ready}, []int64{1, 4, 2, 6}},
		{"delayed", store.PendingFilter{State: store.Delayed}, []int64{3}},
		{"leased", store.PendingFilter{State: store.Leased}, []int64{5}},
		{"crashed", store.PendingFilter{Crashed: true}, []int64{1}},
		{"older than it can be", store.PendingFilter{OlderThan: time.Hour}, nil},
		{"older", store.PendingFilter{OlderThan: lease}, []int64{1}},
		{"all fields match", store.PendingFilter{Consumer: "c", PayloadType: payload, State: store.Ready}, []int64{1, 4}},
	} {
		equal(k, "filter by "+test.name, idsOfPending(k.list(test.filter, 10)), test.want)
		n, err := k.store.Pending.Count(k.ctx, k.db, test.filter)
		k.must("count", err)
		equal(k, "count by "+test.name, n, len(test.want))
	}
}

func pendingHeld(k *kit) {
	ids := k.add("c", 3)
	c := k.take("a", "c", ids[0], ids[1])
	k.pause("c")
	k.pass(time.Second)
	for i, claim := range []int64{c.ID, c.ID, 0} {
		row, found, err := k.store.Pending.Get(k.ctx, k.db, ids[i], true)
		k.must("read", err)
		equal(k, "found", found, true)
		equal(k, "claim", row.ClaimID, claim)
		equal(k, "payload", string(row.Payload), "{}")
		equal(k, "paused", span(row.PausedSince.Time), "0s")
	}
	row, _, err := k.store.Pending.Get(k.ctx, k.db, ids[0], false)
	k.must("read", err)
	equal(k, "payload that was not asked for", len(row.Payload), 0)
	equal(k, "owner", row.Owner, "a")
	equal(k, "messages", row.HeldBy.Messages, 2)
	equal(k, "claimed and leased", span(row.ClaimedAt.Time)+" "+span(row.LeasedUntil.Time), "0s 30s")
	_, found, err := k.store.Pending.Get(k.ctx, k.db, 9999, true)
	k.must("read what is missing", err)
	equal(k, "missing found", found, false)
}

func pendingClaims(k *kit) {
	ids := k.add("c", 3)
	first := k.take("a", "c", ids[0], ids[1])
	k.pass(lease)
	second := k.take("b", "c", ids[2])
	k.settle("a", results(first, store.Done, ids[0])...)
	k.pass(lease + time.Second)
	k.extend("b")
	rows, err := k.store.Pending.Claims(k.ctx, k.db)
	k.must("claims", err)
	var got []string
	for _, row := range rows {
		got = append(got, fmt.Sprint(row.ClaimID, " ", row.Owner, " ", row.Messages, " ", row.Expired))
	}
	equal(k, "claims", got, []string{fmt.Sprint(first.ID, " a 1 true"), fmt.Sprint(second.ID, " b 1 false")})
}

func pendingConsumers(k *kit) {
	names, err := k.store.Pending.StoredConsumers(k.ctx, k.db)
	k.must("stored consumers", err)
	equal(k, "of empty tables", names, nil)
	k.add("c", 3)
	k.add("e", 1)
	k.crash("e", 1)
	k.add("d", 2)
	k.settle("a", results(k.take("a", "d", k.messages()[4].ID), store.Poison, k.messages()[4].ID)...)
	k.settle("a", results(k.take("a", "d", k.messages()[4].ID), store.Poison, k.messages()[4].ID)...)
	names, err = k.store.Pending.StoredConsumers(k.ctx, k.db)
	k.must("stored consumers", err)
	slices.Sort(names)
	equal(k, "pending, crashed and poisoned", names, []string{"c", "d", "e"})
}

func (k *kit) change(db bun.IDB, c store.PendingChange, ids ...int64) store.Changed {
	k.Helper()
	changed, err := k.store.Pending.Change(k.ctx, db, ids, c)
	k.must("change", err)
	return changed
}

// equalChange takes nothing and an empty list for the same.
func equalChange(k *kit, what string, got, want store.Changed) {
	k.Helper()
	equal(k, what, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
}

func pendingCancel(k *kit) {
	keyed := k.message("c")
	keyed.InsertID = "key"
	k.insert(keyed)
	ids := append([]int64{k.messages()[0].ID}, k.add("c", 2)...)
	equalChange(k, "cancelled", k.change(k.db, store.PendingChange{Cancel: true}, ids[2], ids[0], ids[0]),
		store.Changed{IDs: []int64{ids[0], ids[2]}, PayloadTypes: []string{payload}})
	equal(k, "left", k.pending(), ids[1:2])
	equal(k, "the key is free again", len(k.insert(keyed)), 1)
	equalChange(k, "nothing named", k.change(k.db, store.PendingChange{Cancel: true}), store.Changed{})
}

func pendingReschedule(k *kit) {
	later := k.message("c")
	later.Delay = time.Hour
	k.insert(later, k.message("c"))
	first, second := k.messages()[0].ID, k.messages()[1].ID
	if k.messages()[0].Available == "0s" {
		first, second = second, first
	}
	k.pass(time.Minute)
	k.change(k.db, store.PendingChange{}, first)
	k.change(k.db, store.PendingChange{AvailableAt: epoch().Add(time.Hour)}, second)
	due := map[int64]string{}
	for _, m := range k.messages() {
		due[m.ID] = m.Available
	}
	equal(k, "due", due, map[int64]string{first: "1m0s", second: "1h0m0s"})
	k.take("a", "c", first)
}

func pendingHolders(k *kit) {
	ids := k.add("c", 3)
	k.take("a", "c", ids[0])
	before := k.messages()
	for _, c := range []store.PendingChange{{Cancel: true}, {AvailableAt: epoch().Add(time.Hour)}} {
		equalChange(k, "claimed and missing", k.change(k.db, c, ids[0], 9999), store.Changed{Held: ids[:1], Missing: []int64{9999}})
		equal(k, "messages", k.messages(), before)
	}
	equalChange(k, "claimed, missing and free", k.change(k.db, store.PendingChange{Cancel: true}, ids[1], ids[0], 9999),
		store.Changed{IDs: ids[1:2], PayloadTypes: []string{payload}, Held: ids[:1], Missing: []int64{9999}})
	k.pass(lease + time.Second)
	equalChange(k, "claimed by an owner that vanished", k.change(k.db, store.PendingChange{}, ids[0]), store.Changed{Held: ids[:1]})
	k.recover(100)
	equalChange(k, "recovered", k.change(k.db, store.PendingChange{}, ids[0]), store.Changed{IDs: ids[:1], PayloadTypes: []string{payload}})
}

func pendingInTransaction(k *kit) {
	ids := k.add("c", 1)
	tx, err := k.db.BeginTx(k.ctx, readCommitted(k))
	k.must("begin", err)
	if k.db.Dialect().Name() == dialect.MySQL { // it cannot detect whether that sees the newest claims
		_, err := k.store.Pending.Change(k.ctx, tx, ids, store.PendingChange{Cancel: true})
		k.must("roll back", tx.Rollback())
		if !errors.Is(err, bus.ErrInvalidOption) {
			k.Errorf("change in a transaction: got error %v, want ErrInvalidOption", err)
		}
		return
	}
	equal(k, "cancelled", k.change(tx, store.PendingChange{Cancel: true}, ids...).IDs, ids)
	k.must("roll back", tx.Rollback())
	equal(k, "after the rollback", k.pending(), ids)
}
