package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func perKeyCases() []testCase {
	return []testCase{
		{"claimers at once keep to the bound of each key", perKeyAtOnce},
		{"what waits does not hold up its key", perKeyWaits},
		{"what is due later is not looked at before", perKeyLater},
		{"of those of a key that had begun each has crashed", perKeyCrashes},
		{"a few keys have their share beside one with many", perKeyShares},
		{"rates of keys hold by themselves, and are swept", perKeyRates},
		{"a rate of keys that is raised, or a clock that is set back, counts at once", raisedKeyRates},
		{"in order each key keeps to its rate", orderedRates},
		{"what the rate of a key has counted in vain is returned while that of the consumer is spent", returnedRates},
	}
}

// perKey is where messages of a consumer are of which n of a key run at once.
func perKey(n int, rate *store.Rate) store.Lanes {
	s := source("c")
	s.PerKey, s.KeyRate = n, rate
	return store.Lanes{Source: s, Run: n}
}

// ofTenant makes the nth message of a key whose messages run in any order.
func (k *kit) ofTenant(key string, n int) store.NewMessage {
	m := k.ofKey("c", key, n)
	m.AnyOrder = true
	return m
}

// tenants is what claimers at once check each other with.
type tenants struct {
	*kit
	mu      sync.Mutex
	running map[string]int
	most    int // that ran at once of a key
	left    int
	wrong   []string
}

// perKeyAtOnce has claimers take messages of a few keys, and finish, fail or release them, or
// vanish with them.
func perKeyAtOnce(k *kit) {
	const claimers, keys, each, bound = 6, 4, 40, 3
	s := &tenants{kit: k, running: make(map[string]int), left: keys * each}
	for n := range each {
		var rows []store.NewMessage
		for key := range keys {
			rows = append(rows, k.ofTenant(fmt.Sprint(key), n))
		}
		k.insert(rows...)
	}
	deadline := time.Now().Add(time.Minute)
	errs := together(claimers, func(i int) error {
		random := rand.New(rand.NewPCG(uint64(i), 2))
		for time.Now().Before(deadline) {
			s.mu.Lock()
			over := s.left == 0 || len(s.wrong) > 0
			s.mu.Unlock()
			if over {
				return nil
			}
			if err := s.work(random, fmt.Sprint("owner ", i), bound); err != nil {
				return err
			}
		}
		return fmt.Errorf("%d messages are left after a minute", s.left)
	})
	for _, err := range errs {
		k.Errorf("claimer: got error %v, want none", err)
	}
	if len(s.wrong) > 0 {
		k.Errorf("bound: got %d violations, the first: %s", len(s.wrong), s.wrong[0])
	}
	equal(k, "the most of a key at once", s.most, bound)
}

// work is one claim, and what becomes of it.
func (s *tenants) work(random *rand.Rand, owner string, bound int) error {
	l := perKey(bound, nil)
	l.Hint, l.Cursor = random.Int64N(2)*epoch().UnixMicro()/2, random.Int64()
	for range random.IntN(3) {
		l.Sticky = append(l.Sticky, store.Lane(fmt.Sprint(random.IntN(4))))
	}
	c, err := s.store.Claims.Claim(s.ctx, s.db, ofLanes(owner, 1+random.IntN(10), l))
	if err != nil || c.ID == 0 {
		s.pass(time.Millisecond)
		return err
	}
	s.mu.Lock()
	for _, m := range c.Messages {
		s.running[m.OrderKey]++
		if s.most = max(s.most, s.running[m.OrderKey]); s.running[m.OrderKey] > bound {
			s.wrong = append(s.wrong, fmt.Sprintf("key %s: %d run, want %d at most", m.OrderKey, s.running[m.OrderKey], bound))
		}
	}
	s.mu.Unlock()
	random.Shuffle(len(c.Messages), func(i, j int) { c.Messages[i], c.Messages[j] = c.Messages[j], c.Messages[i] })
	for _, m := range c.Messages {
		r := store.Result{Claim: c.ID, Message: m.ID, Lane: m.Lane, Rank: m.Rank, Outcome: store.Done}
		switch random.IntN(10) {
		case 0:
			r.Outcome = store.Release
		case 1:
			r.Outcome, r.Delay = store.Failed, time.Duration(random.IntN(5))*time.Millisecond
		}
		s.mu.Lock()
		s.running[m.OrderKey]--
		if r.Outcome == store.Done {
			s.left--
		}
		s.mu.Unlock()
		if _, err := s.store.Claims.Settle(s.ctx, s.db, owner, lease, []store.Result{r}); err != nil {
			return err
		}
	}
	return nil
}

// perKeyWaits fails as many of a key as may run at once.
func perKeyWaits(k *kit) {
	for n := range 6 {
		k.insert(k.ofTenant("a", n))
	}
	one := k.claim(ofLanes("o", 10, perKey(1, nil)))
	equal(k, "one of the key at once", len(one.Messages), 1)
	if again := k.claim(ofLanes("o", 10, perKey(1, nil))); again.ID != 0 {
		k.Errorf("claim for one at once beside it: got %v, want none", idsOf(again))
	}
	k.finish("o", one.ID)
	ask := func() store.Claim { return k.claim(ofLanes("o", 10, perKey(2, nil))) }
	c := ask()
	equal(k, "messages of the key", len(c.Messages), 2)
	if again := ask(); again.ID != 0 {
		k.Errorf("claim beside it: got %v, want none", idsOf(again))
	}
	k.settle("o", store.Result{Claim: c.ID, Message: c.Messages[0].ID, Lane: c.Messages[0].Lane, Outcome: store.Failed, Delay: time.Hour})
	equal(k, "in the place of one that failed", len(ask().Messages), 1)
	k.settle("o", store.Result{Claim: c.ID, Message: c.Messages[1].ID, Lane: c.Messages[1].Lane, Outcome: store.Snoozed, Delay: time.Hour})
	equal(k, "in the place of one that snoozes", len(ask().Messages), 1)
	places := k.places()
	for _, m := range k.messages() {
		if got := span(time.UnixMicro(places[m.ID])); got != m.Available {
			k.Errorf("message %d: got place %s, want when it is due: %s", m.ID, got, m.Available)
		}
	}
}

// places are the ranks of messages, by their ids.
func (k *kit) places() map[int64]int64 {
	var rows []struct{ ID, Rank int64 }
	k.must("read", k.db.NewRaw("SELECT id, rank FROM ?", k.table("consumer_messages")).Scan(k.ctx, &rows))
	places := make(map[int64]int64)
	for _, row := range rows {
		places[row.ID] = row.Rank
	}
	return places
}

// perKeyLater produces for later, and changes its mind.
func perKeyLater(k *kit) {
	later := k.ofTenant("a", 0)
	later.Delay = time.Hour
	k.insert(later)
	look := []store.LaneLook{{Source: perKey(2, nil).Source}}
	states, err := k.store.Claims.PollLanes(k.ctx, k.db, look, true)
	k.must("poll", err)
	equal(k, "states", states, []store.LaneState{{Next: time.Hour.Microseconds()}})
	if c := k.claim(ofLanes("o", 10, perKey(2, nil))); c.ID != 0 {
		k.Errorf("claim: got %v, want none", idsOf(c))
	}
	id := k.messages()[0].ID
	for _, at := range []time.Time{epoch().Add(2 * time.Hour), epoch().Add(time.Minute)} {
		_, err = k.store.Pending.Change(k.ctx, k.db, []int64{id}, store.PendingChange{AvailableAt: at})
		k.must("reschedule", err)
		equal(k, "place", k.places()[id], at.UnixMicro())
	}
	k.pass(time.Hour)
	equal(k, "messages", len(k.claim(ofLanes("o", 10, perKey(2, nil))).Messages), 1)
}

// perKeyCrashes lets an owner vanish over messages of one key, which ran side by side.
func perKeyCrashes(k *kit) {
	k.insert(k.ofTenant("a", 0), k.ofTenant("a", 1), k.ofTenant("a", 2))
	c := k.claim(ofLanes("dead", 10, perKey(2, nil)))
	equal(k, "messages", len(c.Messages), 2)
	k.pass(lease + time.Second)
	equal(k, "recovered", k.recover(3), store.Recovered{Claims: 1, Crashed: 2})
	if c := k.claim(ofLanes("o", 10, perKey(2, nil))); c.ID != 0 {
		k.Errorf("claim of clean messages: got %v, want none: those that crashed keep their places", idsOf(c))
	}
	equal(k, "the clean one, where three may run", len(k.claim(ofLanes("o", 10, perKey(3, nil))).Messages), 1)
	r := store.ClaimRequest{Owner: "o", Lease: lease, MaxBytes: ample, Select: store.Suspects, Limit: 5, Stuck: []store.Lanes{perKey(2, nil)}}
	crashed := idsOf(k.claim(r))
	equal(k, "a crashed one beside it", len(crashed), 1)
	if again := k.claim(r); again.ID != 0 {
		k.Errorf("claim of the other: got %v, want none: two run", idsOf(again))
	}
	r.Stuck = []store.Lanes{perKey(5, nil)}
	if other := idsOf(k.claim(r)); len(other) != 1 || other[0] == crashed[0] {
		k.Errorf("claim of what has crashed where more may run: got %v, want the one that is not %d", other, crashed[0])
	}
}

// perKeyShares goes on as a process does: with what the claim before knew of more.
func perKeyShares(k *kit) {
	for n := range 1000 {
		k.insert(k.ofTenant("hot", n))
	}
	for n := range 5 {
		k.insert(k.ofTenant("a", n), k.ofTenant("b", n))
	}
	var deep []int64
	others := 0
	for range 3 {
		l := perKey(store.Unbounded, nil)
		l.Run, l.Sticky = 100, deep
		c := k.claim(ofLanes("o", 100, l))
		for _, m := range c.Messages {
			if m.OrderKey != "hot" {
				others++
			}
		}
		deep = c.News.Deep
		k.finish("o", c.ID)
	}
	equal(k, "messages of the others in three claims", others, 10)
}

// perKeyRates has a rate of one a minute, and two at once.
func perKeyRates(k *kit) {
	rate := &store.Rate{Name: "c", N: 2, Per: 2 * time.Minute, Burst: 2}
	for n := range 4 {
		k.insert(k.ofTenant("a", n), k.ofTenant("b", n))
	}
	ask := func(limit int) (ran []string, c store.Claim) {
		c = k.claim(ofLanes("o", limit, perKey(100, rate)))
		for _, m := range c.Messages {
			ran = append(ran, m.OrderKey)
		}
		slices.Sort(ran)
		if c.ID > 0 {
			k.finish("o", c.ID)
		}
		return ran, c
	}
	for _, step := range []struct {
		pass time.Duration
		want []string
		wait time.Duration
	}{{0, []string{"a", "a", "b", "b"}, 0}, {0, nil, time.Minute}, {30 * time.Second, nil, 30 * time.Second}, {30 * time.Second,
		[]string{"a", "b"}, 0}, {0, nil, time.Minute}, {time.Hour, []string{"a", "b"}, 0}} {
		k.pass(step.pass)
		ran, c := ask(10)
		equal(k, "ran after "+k.now(), ran, step.want)
		if c.ID == 0 && c.News.Wait != step.wait {
			k.Errorf("wait at %s: got %s, want %s", k.now(), c.News.Wait, step.wait)
		}
	}
	k.pass(time.Hour)
	k.insert(k.ofTenant("z", 0))
	ask(10)
	var n int
	k.must("count", k.db.NewRaw("SELECT count(*) FROM ?", k.table("message_key_rates")).Scan(k.ctx, &n))
	equal(k, "rates that are kept", n, 1)
}

func raisedKeyRates(k *kit) {
	for n := range 20 {
		k.insert(k.ofTenant("a", n))
	}
	k.raises(store.Lane("a"), func(rate store.Rate) store.ClaimRequest { return ofLanes("o", 20, perKey(100, &rate)) })
}

// orderedRates has runs of a key end where its rate does.
func orderedRates(k *kit) {
	rate := &store.Rate{Name: "c", N: 3, Per: time.Hour, Burst: 3}
	for n := range 5 {
		k.insert(k.ofKey("c", "a", n), k.ofKey("c", "b", n))
	}
	s := source("c")
	s.KeyRate = rate
	c := k.claim(ofLanes("o", 20, store.Lanes{Source: s, Run: 10}))
	equal(k, "messages", len(c.Messages), 6)
	k.finish("o", c.ID)
	if c := k.claim(ofLanes("o", 20, store.Lanes{Source: s, Run: 10})); c.ID != 0 || c.News.Wait != 20*time.Minute {
		k.Errorf("claim of what is over its rate: got %v, wait %s; want none, 20m", idsOf(c), c.News.Wait)
	}
}

// returnedRates has two messages of a key counted that did not start, and the consumer's own rate spent.
func returnedRates(k *kit) {
	rate := &store.Rate{Name: "c", N: 2, Per: time.Hour, Burst: 2}
	ask := func(unused map[int64]int, own *store.Rate) (claimed int) {
		lanes := perKey(100, rate)
		lanes.Unused = unused
		r := ofLanes("o", 10, lanes)
		r.Rate = own
		c := k.claim(r)
		if c.ID != 0 {
			k.finish("o", c.ID)
		}
		return len(c.Messages)
	}
	for n := range 6 {
		k.insert(k.ofTenant("a", n))
	}
	own := &store.Rate{Name: "c", N: 1, Per: time.Minute, Burst: 2}
	equal(k, "of the burst", ask(nil, own), 2)
	equal(k, "while both rates are spent", ask(map[int64]int{store.Lane("a"): 2}, own), 0)
	k.pass(time.Minute)
	equal(k, "once the consumer's rate allows one", ask(nil, own), 1)
	equal(k, "without that rate", ask(nil, nil), 1)
	equal(k, "beyond the rate of the key", ask(nil, nil), 0)
}
