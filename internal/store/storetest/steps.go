package storetest

import (
	"errors"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func stepCases() []testCase {
	return []testCase{
		{"steps are added one behind the other", stepsAdded},
		{"a step of another claim, owner, attempt or crash writes nothing", stepsFenced},
		{"steps stay through failures, crashes, poison and requeue", stepsStay},
		{"a poisoned message of a crash has its steps", stepsOfACrash},
		{"a message that replaces another has no steps", stepsReplaced},
	}
}

func (k *kit) held(c store.Claim) store.Fenced {
	m := c.Messages[0]
	return store.Fenced{Claim: c.ID, ID: m.ID, Attempts: m.Attempts, Crashes: m.Crashes}
}

func (k *kit) addStep(owner string, m store.Fenced, line string) bool {
	k.Helper()
	held, err := k.store.Steps.Append(k.ctx, k.db, owner, m, line)
	k.must("add a step", err)
	return held
}

func (k *kit) steps(id int64) string {
	k.Helper()
	var found []string
	k.must("steps", k.db.NewRaw("SELECT COALESCE(steps, '') FROM ? WHERE id = ?", k.table("consumer_messages"), id).Scan(k.ctx, &found))
	return strings.Join(found, "")
}

// loadSteps returns the steps of a message as its consumer reads them, and whether it is as it was claimed.
func (k *kit) loadSteps(m store.Fenced) []any {
	k.Helper()
	text, held, err := k.store.Steps.Read(k.ctx, k.db, m)
	k.must("load steps", err)
	return []any{text, held}
}

func stepsAdded(k *kit) {
	ids := k.add("c", 2)
	c := k.take("a", "c", ids...)
	equal(k, "at first", k.steps(ids[0]), "")
	equal(k, "held", []bool{k.addStep("a", k.held(c), "one '\\\n"), k.addStep("a", k.held(c), "two\n")}, []bool{true, true})
	equal(k, "steps", k.steps(ids[0]), "one '\\\ntwo\n")
	equal(k, "as its consumer reads them", k.loadSteps(k.held(c)), []any{"one '\\\ntwo\n", true})
	equal(k, "steps of the other", k.steps(ids[1]), "")
	k.settle("a", results(c, store.Done, ids[0])...)
	equal(k, "of one that is gone", k.addStep("a", k.held(c), "three\n"), false)
	equal(k, "steps of one that is gone", k.loadSteps(k.held(c)), []any{"", false})
}

func stepsFenced(k *kit) {
	ids := k.add("c", 1)
	held := k.held(k.take("a", "c", ids...))
	for what, change := range map[string]func(m *store.Fenced) (owner string){
		"another owner": func(*store.Fenced) string { return "b" },
		"another claim": func(m *store.Fenced) string { m.Claim++; return "a" },
		"an attempt":    func(m *store.Fenced) string { m.Attempts++; return "a" },
		"a crash":       func(m *store.Fenced) string { m.Crashes++; return "a" },
	} {
		other := held
		owner := change(&other)
		equal(k, what, k.addStep(owner, other, "x\n"), false)
	}
	k.pass(2 * lease)
	k.recover(3)
	equal(k, "after the recovery", k.addStep("a", held, "x\n"), false)
	again := k.claim(crashed("b", store.Suspects, 1, want("c", 1)))
	equal(k, "by the next owner", k.addStep("b", k.held(again), "y\n"), true)
	equal(k, "by the first", k.addStep("a", held, "x\n"), false)
	equal(k, "steps", k.steps(ids[0]), "y\n")
	equal(k, "as the first reads them", k.loadSteps(held), []any{"", false})
}

// requeued requeues the one poisoned message and returns its new id.
func (k *kit) requeued() int64 {
	k.Helper()
	k.requeue()
	return k.pending()[0]
}

func stepsStay(k *kit) {
	ids := k.add("c", 1)
	c := k.take("a", "c", ids...)
	k.addStep("a", k.held(c), "one\n")
	k.settle("a", results(c, store.Failed, ids...)...)
	c = k.take("a", "c", ids...)
	k.addStep("a", k.held(c), "two\n")
	k.settle("a", results(c, store.Snoozed, ids...)...)
	equal(k, "after a failure and a snooze", k.steps(ids[0]), "one\ntwo\n")
	c = k.take("a", "c", ids...)
	k.settle("a", store.Result{Claim: c.ID, Message: ids[0], Outcome: store.Poison, Reason: "no"})
	p, found, err := k.store.Poison.Get(k.ctx, k.db, k.poisoned()[0].ID)
	k.must("get", err)
	equal(k, "of the poisoned message", []any{found, p.Steps}, []any{true, "one\ntwo\n"})
	equal(k, "after the requeue", k.steps(k.requeued()), "one\ntwo\n")
}

func stepsOfACrash(k *kit) {
	ids := k.add("c", 1)
	k.addStep("a", k.held(k.take("a", "c", ids...)), "one\n")
	k.pass(2 * lease)
	k.recover(3)
	k.vanish(true, store.Suspects)
	equal(k, "recovered", k.recover(2), store.Recovered{Claims: 1, Crashed: 1, Poisoned: 1})
	equal(k, "after the requeue", k.steps(k.requeued()), "one\n")
}

func stepsReplaced(k *kit) {
	m := k.message("c")
	m.InsertID = "key"
	k.insert(m)
	c := k.claim(request("a", want("c", 1)))
	k.addStep("a", k.held(c), "one\n")
	k.settle("a", store.Result{Claim: c.ID, Message: c.Messages[0].ID, Outcome: store.Snoozed, Delay: time.Hour})
	m = k.message("c")
	m.InsertID, m.Replace = "key", true
	_, err := k.store.Outbox.Insert(k.ctx, k.db, []store.NewMessage{m})
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	k.must("replace", err)
	equal(k, "of the new message", k.steps(k.pending()[0]), "")
}
