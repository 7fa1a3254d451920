package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func laneCases() []testCase {
	return []testCase{
		{"claimers at once keep the order of each key", lanesAtOnce},
		{"places are those of the produces, over connections", laneRanks},
		{"what has no order leaves messages with keys alone", lanesApart},
		{"of a key what was poisoned is first again", laneRequeued},
		{"many keys come a little each, few come half by half", laneShares},
		{"a claim walks on where those in front cannot run", laneWalk},
		{"crashed messages with keys are claimed by themselves", laneCrashes},
		{"a look for what may run finds nothing else", laneLooks},
		{"a look leaves more than it covers to a claim", laneLooksAtMany},
		{"of many keys no more are claimed than the consumer's rate allows", laneRate},
		{"messages with keys are counted", laneStats},
		{"only claims wait for a gate", laneGate},
		{"who removes others leaves messages with keys alone", laneRemovals},
		{"a large message that is replaced while it is claimed is left, with those behind it", laneReplaced},
	}
}

// source is where messages of a consumer are.
func source(names ...string) store.Source {
	return store.Source{Name: names[0], Names: names, Payloads: []string{payload}, Parks: true}
}

// ofKey makes the nth message of a key.
func (k *kit) ofKey(consumer, key string, n int) store.NewMessage {
	m := k.message(consumer)
	m.OrderKey, m.Payload = key, fmt.Sprintf(`{"key":%q,"n":%d}`, key, n)
	return m
}

// ofLanes asks for messages with keys.
func ofLanes(owner string, limit int, l store.Lanes) store.ClaimRequest {
	l.Run = max(l.Run, 1)
	return store.ClaimRequest{Owner: owner, Lease: lease, Limit: limit, MaxBytes: ample, Lanes: &l}
}

// shift is what claimers at once check each other with.
type shift struct {
	*kit
	mu      sync.Mutex
	next    map[string]int  // of a key, the number of the first message that is not done
	running map[string]bool // a claim has messages of the key
	parked  map[string]bool
	left    int
	wrong   []string
}

// lanesAtOnce has claimers take, finish, fail, release and poison messages of a few keys, with
// guesses of where to look, and checks that no key is ever in two claims, or out of order.
func lanesAtOnce(k *kit) {
	const claimers, keys, each = 6, 5, 20
	s := &shift{kit: k, next: make(map[string]int), running: make(map[string]bool), parked: make(map[string]bool), left: keys * each}
	for n := range each {
		var rows []store.NewMessage
		for key := range keys {
			rows = append(rows, k.ofKey("c", fmt.Sprint(key), n))
		}
		k.insert(rows...)
	}
	deadline := time.Now().Add(time.Minute)
	errs := together(claimers, func(i int) error {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		for time.Now().Before(deadline) {
			s.mu.Lock()
			over := s.left == 0 || len(s.wrong) > 0
			s.mu.Unlock()
			if over {
				return nil
			}
			if err := s.work(random, fmt.Sprint("owner ", i)); err != nil {
				return err
			}
		}
		return fmt.Errorf("%d messages are left after a minute", s.left)
	})
	for _, err := range append(errs, nil) {
		if err != nil {
			k.Errorf("claimer: got error %v, want none", err)
		}
	}
	if len(s.wrong) > 0 {
		k.Errorf("order: got %d violations, the first: %s", len(s.wrong), s.wrong[0])
	}
	if len(s.wrong) == 0 {
		equal(k, "messages left", k.messages(), nil)
	}
}

// work is one claim, and what becomes of it.
func (s *shift) work(random *rand.Rand, owner string) error {
	l := store.Lanes{Source: source("c"), Run: 1 + random.IntN(5), Hint: int64(random.IntN(60)) - 30, Cursor: random.Int64()}
	l.Hint = max(l.Hint, 0)
	for range random.IntN(3) {
		l.Sticky = append(l.Sticky, store.Lane(fmt.Sprint(random.IntN(5))))
	}
	c, err := s.store.Claims.Claim(s.ctx, s.db, ofLanes(owner, 1+random.IntN(8), l))
	if err != nil || c.ID == 0 {
		s.pass(time.Millisecond)
		return s.requeue(random, err)
	}
	for len(c.Messages) > 0 {
		run := c.Messages
		if end := slices.IndexFunc(run, func(m store.Message) bool { return m.Lane != run[0].Lane }); end > 0 {
			run = run[:end]
		}
		c.Messages = c.Messages[len(run):]
		if err := s.run(random, owner, c.ID, run); err != nil {
			return err
		}
	}
	return nil
}

// run runs messages of one key, until one is not done.
func (s *shift) run(random *rand.Rand, owner string, claim int64, run []store.Message) error {
	key := run[0].OrderKey
	s.begin(key)
	for i, m := range run {
		s.start(key, m)
		r := store.Result{Claim: claim, Message: m.ID, Lane: m.Lane, Parks: true, Outcome: store.Done, Reason: "meant to be"}
		switch random.IntN(12) {
		case 0:
			r.Outcome = store.Release
		case 1:
			r.Outcome, r.Delay = store.Failed, time.Duration(random.IntN(5))*time.Millisecond
		case 2:
			r.Outcome = store.Poison
		}
		results := []store.Result{r}
		over := r.Outcome != store.Done || i == len(run)-1
		if over {
			for _, rest := range run[i+1:] {
				results = append(results, store.Result{Claim: claim, Message: rest.ID, Lane: rest.Lane, Outcome: store.Release})
			}
		}
		s.end(key, r.Outcome, over)
		if _, err := s.store.Claims.Settle(s.ctx, s.db, owner, lease, results); err != nil || over {
			return err
		}
	}
	return nil
}

func (s *shift) begin(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[key] || s.parked[key] {
		s.wrong = append(s.wrong, fmt.Sprintf("key %s is claimed: it runs already: %t, is parked: %t", key, s.running[key], s.parked[key]))
	}
	s.running[key] = true
}

func (s *shift) start(key string, m store.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := fmt.Sprintf(`{"key":%q,"n":%d}`, key, s.next[key]); string(m.Payload) != want {
		s.wrong = append(s.wrong, fmt.Sprintf("%s runs, want %s", m.Payload, want))
	}
}

// end notes what becomes of a message, before others can see it.
func (s *shift) end(key string, o store.Outcome, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o == store.Done {
		s.next[key]++
		s.left--
	}
	s.parked[key] = s.parked[key] || o == store.Poison
	if over {
		s.running[key] = false
	}
}

// requeue requeues what was poisoned, at times.
func (s *shift) requeue(random *rand.Rand, err error) error {
	if err != nil || random.IntN(3) > 0 {
		return err
	}
	return s.inTx(func(ctx context.Context, tx bun.Tx) error {
		rows, err := s.store.Poison.Lock(ctx, tx, store.PoisonFilter{}, 1)
		if err != nil || len(rows) == 0 {
			return err
		}
		all, err := s.store.Poison.List(ctx, tx, store.PoisonFilter{IDs: store.Each(rows, func(p store.Poisoned) int64 { return p.ID })}, 1)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.parked[all[0].OrderKey] = false
		s.mu.Unlock()
		_, err = s.store.Poison.Requeue(ctx, tx, rows, store.Requeuing{})
		return err
	})
}

// laneRanks writes by two connections in turn.
func laneRanks(k *kit) {
	if k.db.Stats().MaxOpenConnections == 1 {
		return
	}
	var conns []bun.Conn
	for range 2 {
		conn, err := k.db.Conn(k.ctx)
		k.must("connect", err)
		defer conn.Close() //nolint:errcheck // it goes back to the pool
		conns = append(conns, conn)
	}
	for n := range 6 {
		_, err := k.store.Outbox.Insert(k.ctx, conns[n%2], []store.NewMessage{k.ofKey("c", "a", n)})
		k.must("insert", err)
	}
	c := k.claim(ofLanes("o", 10, store.Lanes{Source: source("c"), Run: 10}))
	var got []string
	for _, m := range c.Messages {
		got = append(got, string(m.Payload))
	}
	equal(k, "order", got, store.Each([]int{0, 1, 2, 3, 4, 5}, func(n int) string { return fmt.Sprintf(`{"key":"a","n":%d}`, n) }))
}

// lanesApart does what a program without keyed consumers does.
func lanesApart(k *kit) {
	k.insert(k.ofKey("c", "a", 0), k.ofKey("c", "a", 1))
	before := k.messages()
	for _, r := range []store.ClaimRequest{request("o", want("c", 10)), crashed("o", store.Suspects, 10, want("c", 10)), crashed("o",
		store.Killers, 10, want("c", 10))} {
		if c := k.claim(r); c.ID != 0 {
			k.Errorf("claim without regard to keys: got messages %v, want none", idsOf(c))
		}
	}
	poll, err := k.store.Claims.Poll(k.ctx, k.db, []store.Want{want("c", 10)})
	k.must("poll", err)
	if len(poll.Due) > 0 || len(poll.Suspects)+len(poll.Killers) > 0 || poll.Next > 0 {
		k.Errorf("poll without regard to keys: got %+v, want nothing", poll)
	}
	equal(k, "messages", k.messages(), before)
	c := k.claim(ofLanes("o", 10, store.Lanes{Source: source("c"), Run: 10}))
	equal(k, "messages claimed by their keys", len(c.Messages), 2)
}

// laneRequeued poisons the first of a key that another's claim has released.
func laneRequeued(k *kit) {
	k.insert(k.ofKey("c", "a", 0), k.ofKey("c", "a", 1), k.ofKey("c", "b", 0))
	ask := func() store.Claim { return k.claim(ofLanes("o", 10, store.Lanes{Source: source("c"), Run: 1})) }
	c := ask()
	equal(k, "the first of each", len(c.Messages), 2)
	first := c.Messages[slices.IndexFunc(c.Messages, func(m store.Message) bool { return m.OrderKey == "a" })]
	k.settle("o", store.Result{Claim: c.ID, Message: first.ID, Lane: first.Lane, Outcome: store.Poison, Parks: true, Reason: "r"})
	if c := ask(); c.ID != 0 {
		k.Errorf("claim of what is parked, or held: got %v, want none", idsOf(c))
	}
	parked := func(want int64) {
		counted, err := k.store.Keys.Count(k.ctx, k.db, []string{"b", "c"})
		k.must("count parked keys", err)
		equal(k, "parked keys", map[string]int64{"b": counted["b"].N, "c": counted["c"].N}, map[string]int64{"b": 0, "c": want})
		equal(k, "time since when they are", counted["c"].Since.IsZero(), want == 0)
	}
	parked(1)
	err := k.inTx(func(ctx context.Context, tx bun.Tx) error {
		rows, err := k.store.Poison.Lock(ctx, tx, store.PoisonFilter{}, 10)
		k.must("lock", err)
		_, err = k.store.Poison.Requeue(ctx, tx, rows, store.Requeuing{})
		return err
	})
	k.must("requeue", err)
	parked(0)
	again := ask()
	if len(again.Messages) != 1 || again.Messages[0].MessageID != first.MessageID || again.Messages[0].Rank != first.Rank {
		k.Errorf("claim of what was requeued: got %+v, want message %s in its old place", again.Messages, first.MessageID)
	}
}

// laneShares takes of many keys one each, and of few a half, so that another claim finds some.
func laneShares(k *kit) {
	var rows []store.NewMessage
	for n := range 10 {
		for key := range 20 {
			rows = append(rows, k.ofKey("many", fmt.Sprint(key), n))
		}
	}
	for n := range 300 {
		rows = append(rows, k.ofKey("few", fmt.Sprint(n%2), n/2))
	}
	k.insert(rows...)
	keys := func(c store.Claim) int {
		seen := make(map[int64]bool)
		for _, m := range c.Messages {
			seen[m.Lane] = true
		}
		return len(seen)
	}
	c := k.claim(ofLanes("o", 20, store.Lanes{Source: source("many"), Run: 20}))
	equal(k, "of many keys: messages, keys", []int{len(c.Messages), keys(c)}, []int{20, 20})
	c = k.claim(ofLanes("o", 40, store.Lanes{Source: source("few"), Run: 40}))
	equal(k, "of few keys: messages, keys", []int{len(c.Messages), keys(c)}, []int{40, 1})
	c = k.claim(ofLanes("o", 40, store.Lanes{Source: source("few"), Run: 40}))
	equal(k, "of the other: messages, keys", []int{len(c.Messages), keys(c)}, []int{40, 1})
}

// laneWalk has more messages in front that cannot run than a claim looks at.
func laneWalk(k *kit) {
	var rows []store.NewMessage
	for n := range 100 {
		rows = append(rows, k.ofKey("c", "busy", n))
	}
	rows = append(rows, k.ofKey("c", "late", 0))
	k.insert(rows...)
	held := k.claim(ofLanes("o", 1, store.Lanes{Source: source("c"), Run: 1}))
	equal(k, "held", len(held.Messages), 1)
	c := k.claim(ofLanes("o", 5, store.Lanes{Source: source("c"), Run: 5}))
	if len(c.Messages) != 1 || c.Messages[0].OrderKey != "late" {
		k.Errorf("claim behind a busy key: got %d messages, want that of the other key", len(c.Messages))
	}
	if !c.News.Left {
		k.Errorf("news: got %+v, want that there is more", c.News)
	}
}

// laneCrashes lets owners vanish over a key.
func laneCrashes(k *kit) {
	k.insert(k.ofKey("c", "a", 0), k.ofKey("c", "a", 1), k.ofKey("c", "b", 0))
	const most = 3
	lanes := store.Lanes{Source: source("c"), Run: 10}
	all := k.claim(ofLanes("dead", 10, lanes))
	equal(k, "all", len(all.Messages), 3)
	k.pass(lease + time.Second)
	equal(k, "recovered", k.recover(most), store.Recovered{Claims: 1, Crashed: 2})
	if c := k.claim(ofLanes("o", 10, lanes)); c.ID != 0 {
		k.Errorf("claim of the clean: got %v, want none: those behind wait", idsOf(c))
	}
	states, err := k.store.Claims.PollLanes(k.ctx, k.db, []store.LaneLook{{Source: source("c")}}, true)
	k.must("poll", err)
	slices.SortFunc(states, func(a, b store.LaneState) int { return a.Crashes - b.Crashes })
	equal(k, "states", states, []store.LaneState{{}, {Crashes: 1}})
	for crash := 1; crash < most; crash++ {
		r := store.ClaimRequest{
			Owner: "dead", Lease: lease, MaxBytes: ample, Select: store.Selection(min(crash, 2)), Limit: 1, Solo: true,
			Stuck: []store.Lanes{lanes},
		}
		c := k.claim(r)
		if len(c.Messages) != 1 || c.Messages[0].Crashes != crash || c.Messages[0].OrderKey != "a" {
			k.Fatalf("crash %d: got %+v, want the first of the key with as many", crash, c.Messages)
		}
		k.pass(lease + time.Second)
		equal(k, "recovered", k.recover(most).Poisoned, crash/(most-1))
	}
	rows, err := k.store.Poison.List(k.ctx, k.db, store.PoisonFilter{}, 10)
	k.must("poisoned", err)
	if len(rows) != 1 || !rows[0].Parks || rows[0].OrderKey != "a" || rows[0].Crashes != most {
		k.Errorf("poisoned: got %+v, want the first of the key, which parks it", rows)
	}
}
