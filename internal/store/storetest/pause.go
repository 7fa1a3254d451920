package storetest

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func pauseCases() []testCase {
	return []testCase{
		{"a paused consumer is not claimed, others are", pausedClaim},
		{"nor are its crashed messages", pausedCrashed},
		{"a paused consumer has nothing to do", pausedPoll},
		{"what is claimed already is settled", pausedSettle},
		{"a pause is known by when it began", pausedList},
		{"a pause is of one set of tables", pausedApart},
	}
}

func (k *kit) pause(consumers ...string) {
	k.Helper()
	k.must("pause", k.store.Flow.Pause(k.ctx, k.db, consumers, "ann", "since the deploy"))
}

func (k *kit) resume(consumers ...string) {
	k.Helper()
	k.resumed(true, consumers...)
}

func (k *kit) resumed(want bool, consumers ...string) {
	k.Helper()
	paused, err := k.store.Flow.Resume(k.ctx, k.db, consumers)
	k.must("resume", err)
	equal(k, "was paused", paused, want)
}

func pausedClaim(k *kit) {
	c, d := k.add("c", 2), k.add("d", 1)
	k.pause("c", "none")
	got := k.claim(request("a", want("c", 10), want("d", 10)))
	equal(k, "claimed while c is paused", idsOf(got), d)
	equal(k, "found while c is paused", got.Found, []int{0, 1})
	k.resume("c")
	k.take("a", "c", c...)
}

func pausedCrashed(k *kit) {
	c, d := k.add("c", 1), k.add("d", 1)
	k.crash("c", 1)
	k.crash("d", 1)
	k.pause("c")
	equal(k, "suspects claimed", idsOf(k.claim(crashed("a", store.Suspects, 10, want("c", 1), want("d", 1)))), d)
	k.resume("c")
	equal(k, "suspects claimed after the resume", idsOf(k.claim(crashed("a", store.Suspects, 10, want("c", 1), want("d", 1)))), c)
}

func pausedPoll(k *kit) {
	k.add("c", 1)
	k.add("d", 1)
	k.crash("d", 3)
	later := k.message("c")
	later.Delay = time.Minute
	k.insert(later)
	k.pause("c", "d")
	k.poll("all paused", store.Poll{}, want("d", 1), want("c", 1))
	k.resume("d")
	k.poll("one resumed", store.Poll{Killers: []int{0}}, want("d", 1), want("c", 1))
	k.resume("c")
	k.poll("both resumed", store.Poll{Killers: []int{0}, Due: []int{1}, Next: time.Minute}, want("d", 1), want("c", 1))
}

func pausedSettle(k *kit) {
	ids := k.add("c", 2)
	c := k.take("a", "c", ids...)
	k.pause("c")
	settled := k.settle("a", append(results(c, store.Done, ids[0]), results(c, store.Failed, ids[1])...)...)
	equal(k, "results that count", settled.Applied, 2)
	equal(k, "claimed once it failed", idsOf(k.claim(request("a", want("c", 10)))), nil)
	k.resume("c")
	k.take("a", "c", ids[1])
}

func pausedList(k *kit) {
	k.pause("d", "it's")
	k.pass(time.Minute)
	k.pause("c", "d")
	k.resumed(false, "none")
	rows, err := k.store.Flow.PausedConsumers(k.ctx, k.db)
	k.must("list what is paused", err)
	got := map[string]string{}
	for _, row := range rows {
		got[row.ConsumerType] = span(row.PausedAt.Time)
	}
	equal(k, "paused since", got, map[string]string{"c": "1m0s", "d": "0s", "it's": "0s"})
}

func pausedApart(k *kit) {
	other := k.with(bus.Tables{Prefix: k.tables.Prefix + "other_"})
	other.migrate()
	other.pause("c")
	k.take("a", "c", k.add("c", 1)...)
	other.add("c", 1)
	equal(k, "claimed where it is paused", idsOf(other.claim(request("a", want("c", 1)))), nil)
}
