package storetest

import (
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func settleCases() []testCase {
	return []testCase{
		{"done removes the message", settleDone},
		{"failed counts an attempt and waits", settleFailed},
		{"snoozed waits and counts nothing", settleSnoozed},
		{"released leaves the message as it was", settleReleased},
		{"poison moves the message with every column", settlePoison},
		{"poison keeps the errors unless there are new ones", settlePoisonErrors},
		{"errors are kept unless there are new ones", settleErrors},
		{"all outcomes go in one statement", settleMixedOutcomes},
		{"what is settled in part leaves the rest claimed", settlePart},
		{"claims of several messages and several claims go in one statement", settleMany},
		{"every live claim gets a new lease", settleLease},
		{"no results are no work", settleNothing},
		{"a removed message is not settled", settleRemoved},
	}
}

// suspect adds one message that has failed once and then crashed once, a minute
// ago, and claims it.
func (k *kit) suspect() (store.Claim, row) {
	k.Helper()
	m := k.keyed("c", "key")
	m.Payload, m.Headers = `{"n":1}`, `{"h":"v"}`
	k.insert(m)
	id := k.pending()[0]
	k.settle("a", store.Result{Claim: k.take("a", "c", id).ID, Message: id, Outcome: store.Failed, Errors: "first"})
	k.crash("c", 1)
	k.pass(time.Minute)
	c := k.claim(crashed("a", store.Suspects, 1, want("c", 1)))
	before := k.row(id)
	if before.Attempts != 1 || before.Crashes != 1 || before.Errors != "first" || c.ID == 0 {
		k.Fatalf("message: got %+v, want one claimed with an attempt, a crash and errors", before)
	}
	return c, before
}

// ended checks that one result was written and its claim is gone.
func (k *kit) ended(c store.Claim, got store.Settled) {
	k.Helper()
	equal(k, "settled", got, store.Settled{Live: []int64{c.ID}, Applied: 1})
	equal(k, "claims", k.claims(), nil)
}

func settleDone(k *kit) {
	c, before := k.suspect()
	k.ended(c, k.settle("a", results(c, store.Done, before.ID)...))
	equal(k, "messages", k.pending(), nil)
	equal(k, "poisoned", k.poisoned(), nil)
}

func settleFailed(k *kit) {
	c, want := k.suspect()
	k.ended(c, k.settle("a",
		store.Result{Claim: c.ID, Message: want.ID, Outcome: store.Failed, Delay: 90*time.Second + time.Microsecond, Errors: "second"}))
	want.Attempts, want.Crashes, want.Errors, want.Available = 2, 0, "second", k.in(90*time.Second+time.Microsecond)
	equal(k, "message", k.row(want.ID), want)
}

func settleSnoozed(k *kit) {
	c, want := k.suspect()
	k.ended(c, k.settle("a", store.Result{Claim: c.ID, Message: want.ID, Outcome: store.Snoozed, Delay: time.Hour}))
	want.Crashes, want.Available = 0, k.in(time.Hour)
	equal(k, "message", k.row(want.ID), want)
}

func settleReleased(k *kit) {
	c, want := k.suspect()
	k.ended(c, k.settle("a",
		store.Result{Claim: c.ID, Message: want.ID, Outcome: store.Release, Delay: time.Hour, Errors: "none of it", Reason: "is written"}))
	equal(k, "message", k.row(want.ID), want)
	equal(k, "claimed again", idsOf(k.claim(crashed("b", store.Suspects, 1, store.Want{Consumer: "c", Payload: payload}))), []int64{want.ID})
}

func settlePoison(k *kit) {
	c, want := k.suspect()
	k.ended(c,
		k.settle("a", store.Result{Claim: c.ID, Message: want.ID, Outcome: store.Poison, Delay: time.Hour, Errors: "second", Reason: "enough"}))
	want.Attempts, want.Errors, want.Poisoned, want.Reason = 2, "second", k.now(), "enough"
	equal(k, "poisoned", k.poisoned(), []row{want})
	equal(k, "messages", k.pending(), nil)
}

func settlePoisonErrors(k *kit) {
	c, before := k.suspect()
	k.settle("a", results(c, store.Poison, before.ID)...)
	equal(k, "errors of the poisoned message", k.poisoned()[0].Errors, "first")
	ids := k.add("c", 1)
	k.settle("a", results(k.take("a", "c", ids...), store.Poison, ids...)...)
	equal(k, "errors of a poisoned message that had none", k.poisoned()[1].Errors, null)
}

func settleErrors(k *kit) {
	ids := k.add("c", 1)
	for i, step := range []struct {
		outcome        store.Outcome
		errors, stored string
	}{
		{store.Snoozed, "", null},
		{store.Failed, "one", "one"},
		{store.Failed, "", "one"},
		{store.Snoozed, "", "one"},
		{store.Release, "two", "one"},
		{store.Failed, "two", "two"},
	} {
		c := k.take("a", "c", ids...)
		k.settle("a", store.Result{Claim: c.ID, Message: ids[0], Outcome: step.outcome, Errors: step.errors})
		equal(k, fmt.Sprintf("errors after step %d, %s with %q", i, step.outcome, step.errors), k.row(ids[0]).Errors, step.stored)
	}
}

func settleMixedOutcomes(k *kit) {
	ids := k.add("c", 6)
	c := k.take("a", "c", ids...)
	got := k.settle("a",
		store.Result{Claim: c.ID, Message: ids[5], Outcome: store.Poison, Reason: "r"},
		store.Result{Claim: c.ID, Message: ids[4], Outcome: store.Release},
		store.Result{Claim: c.ID, Message: ids[3], Outcome: store.Snoozed, Delay: time.Second},
		store.Result{Claim: c.ID, Message: ids[2], Outcome: store.Failed, Delay: time.Minute},
		store.Result{Claim: c.ID, Message: ids[1], Outcome: store.Done})
	equal(k, "settled", got, store.Settled{Live: []int64{c.ID}, Applied: 5})
	equal(k, "still claimed", k.claims()[0].Messages, list(ids[0]))
	var left []string
	for _, m := range k.messages() {
		left = append(left, fmt.Sprintf("#%d after %d attempts at %s", m.ID, m.Attempts, m.Available))
	}
	equal(k, "messages", left, []string{
		fmt.Sprintf("#%d after 0 attempts at 0s", ids[0]),
		fmt.Sprintf("#%d after 1 attempts at 1m0s", ids[2]),
		fmt.Sprintf("#%d after 0 attempts at 1s", ids[3]),
		fmt.Sprintf("#%d after 0 attempts at 0s", ids[4]),
	})
	poisoned := k.poisoned()
	if len(poisoned) != 1 || poisoned[0].ID != ids[5] {
		k.Errorf("poisoned: got %+v, want message %d", poisoned, ids[5])
	}
}

func settlePart(k *kit) {
	ids := k.add("c", 5)
	c := k.take("a", "c", ids...)
	equal(k, "first part", k.settle("a", results(c, store.Done, ids[1], ids[3])...), store.Settled{Live: []int64{c.ID}, Applied: 2})
	equal(k, "still claimed", k.claims()[0].Messages, list(ids[0], ids[2], ids[4]))
	equal(k, "second part", k.settle("a", results(c, store.Done, ids[4])...), store.Settled{Live: []int64{c.ID}, Applied: 1})
	if other := k.claim(request("b", want("c", 5))); other.ID != 0 {
		k.Errorf("claim of what is still claimed: got %v, want none", idsOf(other))
	}
	equal(k, "last part", k.settle("a", results(c, store.Done, ids[0], ids[2])...), store.Settled{Live: []int64{c.ID}, Applied: 2})
	equal(k, "claims", k.claims(), nil)
	equal(k, "messages", k.pending(), nil)
}

func settleMany(k *kit) {
	const claims, size = 5, 20
	ids := k.add("c", claims*size)
	var all []store.Result
	var live []int64
	outcomes := []store.Outcome{store.Done, store.Failed, store.Snoozed, store.Poison, store.Release}
	for i := range claims {
		mine := ids[i*size : (i+1)*size]
		c := k.take("a", "c", mine...)
		live = append(live, c.ID)
		for j, id := range mine {
			all = append(all, results(c, outcomes[(i+j)%len(outcomes)], id)...)
		}
	}
	equal(k, "settled", k.settle("a", all...), store.Settled{Live: live, Applied: claims * size})
	equal(k, "claims", k.claims(), nil)
	equal(k, "messages left and poisoned", []int{len(k.pending()), len(k.poisoned())}, []int{3 * claims * size / 5, claims * size / 5})
	equal(k, "claimed again", len(k.claim(request("b", want("c", len(ids)))).Messages), 3*claims*size/5)
}

func settleLease(k *kit) {
	ids := k.add("c", 7)
	settled, fenced := k.take("a", "c", ids[0], ids[1]), k.take("a", "c", ids[2])
	k.take("a", "c", ids[3])
	others := k.take("b", "c", ids[4])
	k.pass(10 * time.Second)
	before := k.claims()
	got := k.settle("a", append(results(settled, store.Done, ids[0]),
		store.Result{Claim: fenced.ID, Message: ids[5], Outcome: store.Done},
		store.Result{Claim: others.ID, Message: ids[4], Outcome: store.Done})...)
	equal(k, "settled", got, store.Settled{Live: []int64{settled.ID, fenced.ID}, Applied: 1})
	for i, claim := range k.claims() {
		want := before[i]
		if claim.ID == settled.ID || claim.ID == fenced.ID {
			want.LeasedTo = k.in(lease)
		}
		if claim.ID == settled.ID {
			want.Messages = list(ids[1])
		}
		equal(k, fmt.Sprintf("claim %d", i), claim, want)
	}
	equal(k, "messages that were not claimed", idsOf(k.claim(request("c", want("c", 9)))), ids[5:])
}

func settleNothing(k *kit) {
	ids := k.add("c", 1)
	k.take("a", "c", ids...)
	before := k.claims()
	k.pass(time.Second)
	equal(k, "settled", k.settle("a"), store.Settled{})
	equal(k, "finished", k.finish("a"), nil)
	k.must("disclaim", k.store.Claims.Disclaim(k.ctx, k.db, "a", nil))
	equal(k, "claims", k.claims(), before)
	equal(k, "messages", k.pending(), ids)
}

func settleRemoved(k *kit) {
	ids := k.add("c", 5)
	c := k.take("a", "c", ids...)
	_, err := k.db.NewRaw("DELETE FROM ?", k.table("consumer_messages")).Exec(k.ctx)
	k.must("delete", err)
	var all []store.Result
	for i, outcome := range []store.Outcome{store.Done, store.Failed, store.Snoozed, store.Poison, store.Release} {
		all = append(all, results(c, outcome, ids[i])...)
	}
	equal(k, "live claims", k.settle("a", all...).Live, []int64{c.ID})
	equal(k, "claims", k.claims(), nil)
	equal(k, "messages", k.pending(), nil)
	equal(k, "poisoned", k.poisoned(), nil)
}
