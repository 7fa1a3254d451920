package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func settleGuardCases() []testCase {
	return []testCase{
		{"the same statement again changes nothing", guardRepeated},
		{"the same part again changes nothing", guardRepeatedPart},
		{"the same part again does not touch a stranger's claim", guardRepeatedUnderStranger},
		{"parts in any order come to the same", guardReordered},
		{"a foreign owner settles nothing", guardOwner},
		{"an unknown claim settles nothing", guardUnknown},
		{"a claim settles only its own messages", guardMembership},
		{"a claim that was taken away settles nothing", guardTakenAway},
		{"live, lost and foreign claims go in one statement", guardMixed},
		{"a late result does not stand in for the new one", guardLateBesideNew},
		{"a late poisoning does not stand in for the new one", guardLatePoison},
		{"eight of the same statement at once count once", guardAtOnce},
	}
}

func guardRepeated(k *kit) {
	ids := k.add("c", 4)
	c := k.take("a", "c", ids...)
	var all []store.Result
	for i, outcome := range []store.Outcome{store.Done, store.Failed, store.Snoozed, store.Poison} {
		all = append(all, store.Result{Claim: c.ID, Message: ids[i], Outcome: outcome, Delay: time.Minute, Errors: "e", Reason: "r"})
	}
	equal(k, "settled", k.settle("a", all...), store.Settled{Live: []int64{c.ID}, Applied: 4})
	messages, poisoned := k.messages(), k.poisoned()
	k.pass(time.Second)
	equal(k, "settled again", k.settle("a", all...), store.Settled{})
	equal(k, "messages", k.messages(), messages)
	equal(k, "poisoned", k.poisoned(), poisoned)
	equal(k, "claims", k.claims(), nil)
}

func guardRepeatedPart(k *kit) {
	ids := k.add("c", 5)
	c := k.take("a", "c", ids...)
	var part []store.Result
	for i, outcome := range []store.Outcome{store.Done, store.Failed, store.Snoozed, store.Poison} {
		part = append(part, store.Result{Claim: c.ID, Message: ids[i], Outcome: outcome, Delay: time.Minute, Errors: "e", Reason: "r"})
	}
	k.settle("a", part...)
	messages, poisoned := k.messages(), k.poisoned()
	k.pass(time.Second)
	equal(k, "settled again", k.settle("a", part...), store.Settled{Live: []int64{c.ID}})
	equal(k, "messages", k.messages(), messages)
	equal(k, "poisoned", k.poisoned(), poisoned)
	equal(k, "still claimed", k.claims()[0].Messages, list(ids[4]))
}

// guardRepeatedUnderStranger is the trap that a guard by the claim alone falls
// into: the claim is still there, but the message has moved on.
func guardRepeatedUnderStranger(k *kit) {
	ids := k.add("c", 2)
	c := k.take("a", "c", ids...)
	part := results(c, store.Failed, ids[0])
	k.settle("a", part...)
	stranger := k.take("b", "c", ids[0])
	messages, claims := k.messages(), k.claims()
	for _, outcome := range []store.Outcome{store.Failed, store.Done, store.Poison, store.Snoozed, store.Release} {
		part[0].Outcome, part[0].Delay = outcome, time.Hour
		equal(k, fmt.Sprintf("%s settled late", outcome), k.settle("a", part...), store.Settled{Live: []int64{c.ID}})
	}
	equal(k, "messages", k.messages(), messages)
	equal(k, "claims", k.claims(), claims)
	equal(k, "poisoned", k.poisoned(), nil)
	equal(k, "settled by the stranger", k.settle("b", results(stranger, store.Done, ids[0])...).Applied, 1)
}

func guardReordered(k *kit) {
	orders := [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 1, 2, 0}, {2, 2, 0, 2, 1, 0, 1}}
	for _, order := range orders {
		ids := k.add("c", 6)
		c := k.take("a", "c", ids...)
		parts := [][]store.Result{
			append(results(c, store.Done, ids[0]), results(c, store.Failed, ids[1])...),
			append(results(c, store.Snoozed, ids[2]), results(c, store.Poison, ids[3])...),
			append(results(c, store.Failed, ids[4]), results(c, store.Release, ids[5])...),
		}
		applied := 0
		for _, i := range order {
			applied += k.settle("a", parts[i]...).Applied
		}
		equal(k, fmt.Sprintf("applied in the order %v", order), applied, len(ids))
		var attempts []int
		for _, m := range k.messages() {
			attempts = append(attempts, m.Attempts)
		}
		equal(k, fmt.Sprintf("attempts in the order %v", order), attempts, []int{1, 0, 1, 0})
		equal(k, "claims", k.claims(), nil)
		left := k.pending()
		k.settle("a", results(k.take("a", "c", left...), store.Done, left...)...)
	}
	equal(k, "poisoned", len(k.poisoned()), len(orders))
}

func guardOwner(k *kit) {
	ids := k.add("c", 2)
	c := k.take("a", "c", ids...)
	messages, claims := k.messages(), k.claims()
	k.pass(time.Second)
	for _, outcome := range []store.Outcome{store.Done, store.Failed, store.Snoozed, store.Poison, store.Release} {
		equal(k, fmt.Sprintf("%s settled by a stranger", outcome), k.settle("b", results(c, outcome, ids...)...), store.Settled{})
	}
	equal(k, "messages", k.messages(), messages)
	equal(k, "claims", k.claims(), claims)
}

func guardUnknown(k *kit) {
	ids := k.add("c", 1)
	c := k.take("a", "c", ids...)
	unknown := store.Claim{ID: c.ID + 1000}
	equal(k, "settled", k.settle("a", results(unknown, store.Done, ids...)...), store.Settled{})
	equal(k, "messages", k.pending(), ids)
	equal(k, "claims", len(k.claims()), 1)
}

func guardMembership(k *kit) {
	ids := k.add("c", 3)
	one, two := k.take("a", "c", ids[0]), k.take("a", "c", ids[1])
	messages := k.messages()
	got := k.settle("a", append(results(one, store.Done, ids[1], ids[2], 1_000_000), results(two, store.Failed, ids[0])...)...)
	equal(k, "settled", got, store.Settled{Live: []int64{one.ID, two.ID}})
	equal(k, "messages", k.messages(), messages)
	var left []string
	for _, c := range k.claims() {
		left = append(left, c.Messages)
	}
	equal(k, "claims", left, []string{list(ids[0]), list(ids[1])})
}

func guardTakenAway(k *kit) {
	ids := k.add("c", 2)
	lost := k.take("a", "c", ids...)
	k.pass(2 * lease)
	k.recover(3)
	k.claim(crashed("b", store.Suspects, 8, want("c", 1)))
	messages, claims := k.messages(), k.claims()
	equal(k, "settled", k.settle("a", results(lost, store.Done, ids...)...), store.Settled{})
	equal(k, "finished", k.finish("a", lost.ID), nil)
	equal(k, "messages", k.messages(), messages)
	equal(k, "claims", k.claims(), claims)
}

func guardMixed(k *kit) {
	ids := k.add("c", 9)
	ended := k.take("a", "c", ids[0])
	k.settle("a", results(ended, store.Release, ids[0])...)
	whole, part, foreign := k.take("a", "c", ids[0], ids[1]), k.take("a", "c", ids[2], ids[3]), k.take("b", "c", ids[4])
	k.settle("a", results(part, store.Failed, ids[2])...)
	got := k.settle("a", slices.Concat(
		results(foreign, store.Done, ids[4]),
		results(part, store.Failed, ids[2]),
		results(whole, store.Done, ids[1], ids[0]),
		results(store.Claim{ID: 1_000_000}, store.Done, ids[5]),
		results(part, store.Poison, ids[3]))...)
	equal(k, "settled", got, store.Settled{Live: []int64{whole.ID, part.ID}, Applied: 3})
	equal(k, "messages", k.pending(), slices.Concat(ids[2:3], ids[4:]))
	equal(k, "attempts of what failed once", k.row(ids[2]).Attempts, 1)
	equal(k, "claims", len(k.claims()), 1)
	equal(k, "owner of the claim left", k.claims()[0].Owner, "b")
}

// guardLateBesideNew has the owner lose a claim, get the message back, and send
// the results of both runs in one statement.
func guardLateBesideNew(k *kit) {
	for _, late := range []bool{true, false} {
		ids := k.add("c", 1)
		lost := k.take("a", "c", ids...)
		k.pass(2 * lease)
		k.recover(3)
		held := k.claim(crashed("a", store.Suspects, 8, want("c", 1)))
		both := append(results(lost, store.Done, ids...), results(held, store.Failed, ids...)...)
		if !late {
			slices.Reverse(both)
		}
		equal(k, "settled", k.settle("a", both...), store.Settled{Live: []int64{held.ID}, Applied: 1})
		if got := k.messages(); len(got) != 1 || got[0].Attempts != 1 {
			k.Fatalf("messages with the late result before the new one %t: got %+v, want one with an attempt", late, got)
		}
		k.settle("a", results(k.take("a", "c", ids...), store.Done, ids...)...)
	}
}

// guardLatePoison is guardLateBesideNew for runs that both poison the message.
func guardLatePoison(k *kit) {
	ids := k.add("c", 1)
	lost := k.take("a", "c", ids...)
	k.must("disclaim", k.store.Claims.Disclaim(k.ctx, k.db, "a", []int64{lost.ID}))
	held := k.take("a", "c", ids...)
	settled := k.settle("a",
		store.Result{Claim: lost.ID, Message: ids[0], Outcome: store.Poison, Fingerprint: "late"},
		store.Result{Claim: held.ID, Message: ids[0], Outcome: store.Poison, Fingerprint: "new"})
	equal(k, "settled", settled, store.Settled{Live: []int64{held.ID}, Applied: 1})
	listed, err := k.store.Poison.List(k.ctx, k.db, store.PoisonFilter{}, 10)
	k.must("list", err)
	equal(k, "fingerprints", store.Each(listed, func(m store.Poisoned) string { return m.Fingerprint }), []string{"new"})
}

func guardAtOnce(k *kit) {
	ids := k.add("c", 20)
	c := k.take("a", "c", ids...)
	part, rest := results(c, store.Failed, ids[:10]...), results(c, store.Failed, ids[10:]...)
	applied := make([]int, 16)
	errs := together(len(applied), func(i int) error {
		settled, err := k.store.Claims.Settle(k.ctx, k.db, "a", lease, [][]store.Result{part, rest}[i%2])
		applied[i] = settled.Applied
		return err
	})
	for _, err := range errs {
		k.Errorf("settle: got error %v, want none", err)
	}
	sum := 0
	for _, n := range applied {
		sum += n
	}
	equal(k, "results applied by all", sum, len(ids))
	for _, m := range k.messages() {
		equal(k, fmt.Sprintf("attempts of message %d", m.ID), m.Attempts, 1)
	}
	equal(k, "claims", k.claims(), nil)
}
