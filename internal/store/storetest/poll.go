package storetest

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func pollCases() []testCase {
	return []testCase{
		{"nothing to do is found as nothing", pollNothing},
		{"due wants are told by their index", pollDue},
		{"claimed messages are not due", pollClaimed},
		{"messages of others are not due", pollOthers},
		{"crashed messages are told apart", pollCrashed},
		{"expired claims are told", pollExpired},
		{"the time to the next message is told", pollNext},
		{"where the first message of each want is is told, and the time", pollPlaces},
		{"what lies up to a place is not looked at", pollBehind},
		{"the time to the end of the first lease is told", pollLease},
		{"a look at what is to do now leaves out only the next message", pollWithoutNext},
		{"a short look finds the same due messages, and nothing else", pollShort},
	}
}

func (k *kit) poll(what string, want store.Poll, wants ...store.Want) {
	k.Helper()
	got, err := k.store.Claims.Poll(k.ctx, k.db, wants)
	k.must("poll", err)
	slices.Sort(got.Due)
	got.First, got.Lease, got.Now = nil, 0, time.Time{} // have cases of their own
	equal(k, "poll with "+what, got, want)
}

func pollNothing(k *kit) {
	k.poll("empty tables", store.Poll{}, want("c", 1), want("d", 1))
	k.poll("no wants", store.Poll{})
	k.add("c", 1)
	k.poll("no wants and a message", store.Poll{})
}

func pollDue(k *kit) {
	k.add("c", 3)
	k.add("e", 1)
	k.poll("two of three due", store.Poll{Due: []int{0, 2}}, want("c", 1), want("d", 1), want("e", 1))
	k.poll("the same in another order", store.Poll{Due: []int{1, 2}}, want("d", 1), want("e", 1), want("c", 1))
}

func pollClaimed(k *kit) {
	ids := k.add("c", 2)
	c := k.take("a", "c", ids[0])
	k.poll("one of two claimed", store.Poll{Due: []int{0}}, want("c", 1))
	k.take("b", "c", ids[1])
	k.poll("both claimed", store.Poll{}, want("c", 1))
	k.settle("a", store.Result{Claim: c.ID, Message: ids[0], Outcome: store.Failed, Delay: time.Second})
	k.poll("one to be retried", store.Poll{Next: time.Second}, want("c", 1))
	k.pass(time.Second)
	k.poll("one retried", store.Poll{Due: []int{0}}, want("c", 1))
}

func pollOthers(k *kit) {
	other := k.message("c")
	other.PayloadType = "other"
	k.insert(other)
	k.add("d", 1)
	k.poll("only others' messages", store.Poll{}, want("c", 1))
	k.poll("messages under a former type", store.Poll{}, renamed("c", 1)...)
	former := k.message("c")
	former.PayloadType = "it's old"
	k.insert(former)
	k.poll("messages under a former type", store.Poll{Due: []int{2}}, append([]store.Want{want("c", 1)}, renamed("c", 1)...)...)
	k.crash("d", 1)
	k.poll("only others' crashed messages", store.Poll{}, want("c", 1), store.Want{Consumer: "d", Payload: "other"})
}

func pollCrashed(k *kit) {
	k.add("c", 2)
	k.crash("c", 1)
	k.poll("suspects", store.Poll{Suspects: []int{0}}, want("c", 1))
	k.add("d", 1)
	k.crash("d", 4)
	k.poll("suspects and killers", store.Poll{Suspects: []int{0}, Killers: []int{1}}, want("c", 1), want("d", 1))
	k.poll("killers", store.Poll{Killers: []int{0}}, want("d", 1))
	k.add("c", 1)
	k.claim(crashed("a", store.Suspects, 10, want("c", 1)))
	k.claim(crashed("a", store.Killers, 1, want("d", 1)))
	k.poll("crashed messages claimed and a clean one", store.Poll{Due: []int{0}}, want("c", 1), want("d", 1))
}

func pollExpired(k *kit) {
	k.take("a", "c", k.add("c", 1)...)
	k.pass(lease)
	k.poll("a lease that ends now", store.Poll{}, want("c", 1))
	k.pass(time.Microsecond)
	k.poll("a lease that has ended", store.Poll{Expired: true, Overdue: time.Microsecond}, want("c", 1))
	k.poll("a lease of other consumers that has ended", store.Poll{Expired: true, Overdue: time.Microsecond}, want("d", 1))
	k.extend("a")
	k.poll("a lease renewed", store.Poll{}, want("c", 1))
}

func pollNext(k *kit) {
	for consumer, delay := range map[string]time.Duration{"c": 90 * time.Second, "d": 45*time.Second + 7*time.Microsecond, "e": time.Second} {
		m := k.message(consumer)
		m.Delay = delay
		k.insert(m)
	}
	k.poll("one delayed", store.Poll{Next: 90 * time.Second}, want("c", 1))
	k.poll("two delayed", store.Poll{Next: 45*time.Second + 7*time.Microsecond}, want("c", 1), want("d", 1))
	k.add("c", 1)
	k.poll("one due as well", store.Poll{Due: []int{1}, Next: 45*time.Second + 7*time.Microsecond}, want("d", 1), want("c", 1))
	k.pass(46 * time.Second)
	k.poll("time passed", store.Poll{Due: []int{0, 1}, Next: 44 * time.Second}, want("d", 1), want("c", 1))
	k.pass(24 * time.Hour)
	k.poll("all due", store.Poll{Due: []int{0, 1}}, want("d", 1), want("c", 1))
}

func pollPlaces(k *kit) {
	ofC, ofD := k.aged("c", 5, 9, 1), k.aged("d", 7)
	k.take("a", "c", ofC[1].ID)
	p, err := k.store.Claims.Poll(k.ctx, k.db, []store.Want{want("d", 1), want("none", 1), want("c", 1)})
	k.must("poll", err)
	found := make(map[int]store.Position)
	for i, due := range p.Due {
		found[due] = p.First[i]
	}
	equal(k, "places", places(found[0], found[2]), places(ofD[0], ofC[0]))
	equal(k, "due", len(found), 2)
	equal(k, "clock", p.Now.Equal(epoch()), true)
}

func pollBehind(k *kit) {
	at := k.aged("c", 5, 4)
	k.poll("the second behind the first", store.Poll{Due: []int{0}}, after("c", 1, at[0]))
	k.poll("nothing behind the second", store.Poll{}, after("c", 1, at[1]))
	p, err := k.store.Claims.Poll(k.ctx, k.db, []store.Want{after("c", 1, at[0])})
	k.must("poll", err)
	equal(k, "place", places(p.First...), places(at[1]))
}

func pollLease(k *kit) {
	k.take("a", "c", k.add("c", 1)...)
	k.pass(lease / 4)
	k.take("b", "d", k.add("d", 1)...)
	p, err := k.store.Claims.Poll(k.ctx, k.db, []store.Want{want("c", 1)})
	k.must("poll", err)
	equal(k, "time left", p.Lease, lease-lease/4)
}

func pollWithoutNext(k *kit) {
	k.add("c", 2)
	k.crash("c", 1)
	k.add("d", 1)
	later := k.message("d")
	later.Delay = time.Minute
	k.insert(later)
	wants := []store.Want{want("d", 1), want("c", 1)}
	all, err := k.store.Claims.Poll(k.ctx, k.db, wants)
	k.must("poll", err)
	equal(k, "next", all.Next, time.Minute)
	now, err := k.store.Claims.PollNow(k.ctx, k.db, wants)
	k.must("poll now", err)
	all.Next = 0
	equal(k, "poll now", now, all)
}

func pollShort(k *kit) {
	at := k.aged("c", 5)
	k.add("d", 1)
	k.crash("d", 1)
	p, err := k.store.Claims.PollDue(k.ctx, k.db, []store.Want{want("d", 1), want("c", 1)})
	k.must("poll", err)
	equal(k, "due", p.Due, []int{1})
	equal(k, "places", places(p.First...), places(at[0]))
	equal(k, "crashed", len(p.Suspects), 0)
}
