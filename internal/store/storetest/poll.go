package storetest

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func probeCases() []testCase {
	return []testCase{
		{"nothing to do is found as nothing", probeNothing},
		{"due wants are told by their index", probeDue},
		{"claimed messages are not due", probeClaimed},
		{"messages of others are not due", probeOthers},
		{"crashed messages are told apart", probeCrashed},
		{"expired claims are told", probeExpired},
		{"the time to the next message is told", probeNext},
		{"where the first message of each want is is told, and the time", probePlaces},
		{"what lies up to a place is not looked at", probeBehind},
		{"the time to the end of the first lease is told", probeLease},
		{"a short look finds the same due messages, and nothing else", probeShort},
	}
}

func (k *kit) probe(what string, want store.Probe, wants ...store.Want) {
	k.Helper()
	got, err := k.store.Claims.Probe(k.ctx, k.db, wants)
	k.must("probe", err)
	slices.Sort(got.Due)
	got.First, got.Lease, got.Now = nil, 0, time.Time{} // have cases of their own
	equal(k, "probe with "+what, got, want)
}

func probeNothing(k *kit) {
	k.probe("empty tables", store.Probe{}, want("c", 1), want("d", 1))
	k.probe("no wants", store.Probe{})
	k.add("c", 1)
	k.probe("no wants and a message", store.Probe{})
}

func probeDue(k *kit) {
	k.add("c", 3)
	k.add("e", 1)
	k.probe("two of three due", store.Probe{Due: []int{0, 2}}, want("c", 1), want("d", 1), want("e", 1))
	k.probe("the same in another order", store.Probe{Due: []int{1, 2}}, want("d", 1), want("e", 1), want("c", 1))
}

func probeClaimed(k *kit) {
	ids := k.add("c", 2)
	c := k.take("a", "c", ids[0])
	k.probe("one of two claimed", store.Probe{Due: []int{0}}, want("c", 1))
	k.take("b", "c", ids[1])
	k.probe("both claimed", store.Probe{}, want("c", 1))
	k.settle("a", store.Result{Claim: c.ID, Message: ids[0], Outcome: store.Failed, Delay: time.Second})
	k.probe("one to be retried", store.Probe{Next: time.Second}, want("c", 1))
	k.pass(time.Second)
	k.probe("one retried", store.Probe{Due: []int{0}}, want("c", 1))
}

func probeOthers(k *kit) {
	other := k.message("c")
	other.PayloadType = "other"
	k.insert(other)
	k.add("d", 1)
	k.probe("only others' messages", store.Probe{}, want("c", 1))
	k.probe("messages under a former type", store.Probe{}, renamed("c", 1)...)
	former := k.message("c")
	former.PayloadType = "it's old"
	k.insert(former)
	k.probe("messages under a former type", store.Probe{Due: []int{2}}, append([]store.Want{want("c", 1)}, renamed("c", 1)...)...)
	k.crash("d", 1)
	k.probe("only others' crashed messages", store.Probe{}, want("c", 1), store.Want{Consumer: "d", Payload: "other"})
}

func probeCrashed(k *kit) {
	k.add("c", 2)
	k.crash("c", 1)
	k.probe("suspects", store.Probe{Suspects: []int{0}}, want("c", 1))
	k.add("d", 1)
	k.crash("d", 4)
	k.probe("suspects and killers", store.Probe{Suspects: []int{0}, Killers: []int{1}}, want("c", 1), want("d", 1))
	k.probe("killers", store.Probe{Killers: []int{0}}, want("d", 1))
	k.add("c", 1)
	k.claim(crashed("a", store.Suspects, 10, want("c", 1)))
	k.claim(crashed("a", store.Killers, 1, want("d", 1)))
	k.probe("crashed messages claimed and a clean one", store.Probe{Due: []int{0}}, want("c", 1), want("d", 1))
}

func probeExpired(k *kit) {
	k.take("a", "c", k.add("c", 1)...)
	k.pass(lease)
	k.probe("a lease that ends now", store.Probe{}, want("c", 1))
	k.pass(time.Microsecond)
	k.probe("a lease that has ended", store.Probe{Expired: true, Overdue: time.Microsecond}, want("c", 1))
	k.probe("a lease of other consumers that has ended", store.Probe{Expired: true, Overdue: time.Microsecond}, want("d", 1))
	k.extend("a")
	k.probe("a lease renewed", store.Probe{}, want("c", 1))
}

func probeNext(k *kit) {
	for consumer, delay := range map[string]time.Duration{"c": 90 * time.Second, "d": 45*time.Second + 7*time.Microsecond, "e": time.Second} {
		m := k.message(consumer)
		m.Delay = delay
		k.insert(m)
	}
	k.probe("one delayed", store.Probe{Next: 90 * time.Second}, want("c", 1))
	k.probe("two delayed", store.Probe{Next: 45*time.Second + 7*time.Microsecond}, want("c", 1), want("d", 1))
	k.add("c", 1)
	k.probe("one due as well", store.Probe{Due: []int{1}, Next: 45*time.Second + 7*time.Microsecond}, want("d", 1), want("c", 1))
	k.pass(46 * time.Second)
	k.probe("time passed", store.Probe{Due: []int{0, 1}, Next: 44 * time.Second}, want("d", 1), want("c", 1))
	k.pass(24 * time.Hour)
	k.probe("all due", store.Probe{Due: []int{0, 1}}, want("d", 1), want("c", 1))
}

func probePlaces(k *kit) {
	ofC, ofD := k.aged("c", 5, 9, 1), k.aged("d", 7)
	k.take("a", "c", ofC[1].ID)
	p, err := k.store.Claims.Probe(k.ctx, k.db, []store.Want{want("d", 1), want("none", 1), want("c", 1)})
	k.must("probe", err)
	found := make(map[int]store.Position)
	for i, due := range p.Due {
		found[due] = p.First[i]
	}
	equal(k, "places", places(found[0], found[2]), places(ofD[0], ofC[0]))
	equal(k, "due", len(found), 2)
	equal(k, "clock", p.Now.Equal(epoch()), true)
}

func probeBehind(k *kit) {
	at := k.aged("c", 5, 4)
	k.probe("the second behind the first", store.Probe{Due: []int{0}}, after("c", 1, at[0]))
	k.probe("nothing behind the second", store.Probe{}, after("c", 1, at[1]))
	p, err := k.store.Claims.Probe(k.ctx, k.db, []store.Want{after("c", 1, at[0])})
	k.must("probe", err)
	equal(k, "place", places(p.First...), places(at[1]))
}

func probeLease(k *kit) {
	k.take("a", "c", k.add("c", 1)...)
	k.pass(lease / 4)
	k.take("b", "d", k.add("d", 1)...)
	p, err := k.store.Claims.Probe(k.ctx, k.db, []store.Want{want("c", 1)})
	k.must("probe", err)
	equal(k, "time left", p.Lease, lease-lease/4)
}

func probeShort(k *kit) {
	at := k.aged("c", 5)
	k.add("d", 1)
	k.crash("d", 1)
	p, err := k.store.Claims.ProbeDue(k.ctx, k.db, []store.Want{want("d", 1), want("c", 1)})
	k.must("probe", err)
	equal(k, "due", p.Due, []int{1})
	equal(k, "places", places(p.First...), places(at[0]))
	equal(k, "crashed", len(p.Suspects), 0)
}
