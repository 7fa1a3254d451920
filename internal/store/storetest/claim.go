package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func claimCases() []testCase {
	return []testCase{
		{"a claim returns its messages whole", claimMessages},
		{"large payloads are whole, too", claimLargePayloads},
		{"a claim is written down with its lease", claimRecorded},
		{"a claim of nothing leaves nothing behind", claimNothing},
		{"only wanted consumers and payload types are claimed", claimWanted},
		{"one consumer may want several payload types", claimSeveralTypes},
		{"a want may name former payload types", claimFormerTypes},
		{"each want has its own limit", claimLimits},
		{"a limit of all wants cuts the claim", claimLimitOfAll},
		{"a limit of all wants leaves the youngest behind", claimLimitOldestFirst},
		{"the order is by the time available, then by id", claimOrder},
		{"messages are not claimed before they are available", claimAvailable},
		{"claimed messages are not claimed again", claimOnce},
		{"a claim that has expired still holds its messages", claimExpired},
		{"eight claimers at once share the messages out", claimAtOnce},
		{"eight claimers at once keep to a rate", claimAtOnceByRate},
		{"a rate that is raised, or a clock that is set back, counts at once", claimRaised},
		{"a claim of nothing returns what the rate has counted in vain", claimReturns},
	}
}

func claimMessages(k *kit) {
	m := k.keyed("c", "key")
	m.Payload, m.Headers, m.AvailableAt = `{"a":1}`, `{"h":"v"}`, epoch().Add(-time.Second)
	k.insert(m)
	id := k.pending()[0]
	k.settle("a", store.Result{Claim: k.take("a", "c", id).ID, Message: id, Outcome: store.Failed, Errors: `["oops"]`, Delay: time.Second})
	k.pass(time.Minute)
	k.crash("c", 1)
	c := k.claim(crashed("a", store.Suspects, 8, want("c", 1)))
	if len(c.Messages) != 1 {
		k.Fatalf("messages claimed: got %d, want 1", len(c.Messages))
	}
	got := c.Messages[0]
	equal(k, "created and available", []string{span(got.CreatedAt.Time), span(got.AvailableAfter.Time)}, []string{"0s", "1s"})
	got.CreatedAt, got.AvailableAfter = store.Moment{}, store.Moment{}
	equal(k, "message", got, store.Message{
		ID: id, MessageID: m.MessageID, ConsumerType: "c", PayloadType: payload, Payload: []byte(`{"a":1}`), Headers: []byte(`{"h":"v"}`),
		InsertID: "key", Attempts: 1, Crashes: 1, Errors: `["oops"]`,
	})
}

// claimLargePayloads claims payloads on both sides of every size at which they
// might be fetched in another way, counted in bytes: the letter takes two.
func claimLargePayloads(k *kit) {
	var payloads []string
	for _, size := range []int{2, 2048, 2049, 4096, 4098, 100_000} {
		m := k.message("c")
		m.Payload = `"` + strings.Repeat("é", (size-2)/2) + `"`
		k.insert(m)
		payloads = append(payloads, m.Payload)
	}
	var got []string
	for _, m := range k.claim(request("a", want("c", 10))).Messages {
		got = append(got, string(m.Payload))
	}
	if !slices.Equal(got, payloads) {
		k.Errorf(
			"payloads: got %d with %d bytes, want %d with %d, unchanged", len(got), len(strings.Join(got, "")), len(payloads),
			len(strings.Join(payloads, "")),
		)
	}
}

func claimRecorded(k *kit) {
	ids := k.add("c", 3)
	k.pass(time.Hour)
	r := request("owner-1", want("c", 2))
	r.Lease, r.Solo = 1500*time.Microsecond, true
	first := k.claim(r)
	second := k.claim(request("owner-2", want("c", 2)))
	equal(k, "claims", k.claims(), []claimRow{
		{ID: first.ID, Owner: "owner-1", Solo: true, Claimed: k.now(), LeasedTo: k.in(1500 * time.Microsecond), Messages: list(ids[:2]...)},
		{ID: second.ID, Owner: "owner-2", Claimed: k.now(), LeasedTo: k.in(lease), Messages: list(ids[2])},
	})
	for _, id := range ids {
		equal(k, "available after being claimed", k.row(id).Available, "0s")
	}
}

func claimNothing(k *kit) {
	for _, wants := range [][]store.Want{{want("c", 10), want("d", 10)}, nil} {
		c := k.claim(request("a", wants...))
		if c.ID != 0 || len(c.Messages) != 0 || c.Cut {
			k.Errorf("claim of nothing: got %+v, want the ID 0 and no messages", c)
		}
		equal(k, "found", c.Found, make([]int, len(wants)))
	}
	k.add("c", 1)
	if c := k.claim(request("a", want("c", 0))); c.ID != 0 {
		k.Errorf("claim with a limit of 0: got messages %v, want none", idsOf(c))
	}
	equal(k, "claims", k.claims(), nil)
}

func claimWanted(k *kit) {
	other := k.message("c")
	other.PayloadType = "other"
	k.insert(other)
	k.add("d", 1)
	ids := k.add("c", 2)
	c := k.claim(request("a", want("b", 10), want("c", 10), want("e", 10)))
	equal(k, "messages", idsOf(c), ids)
	equal(k, "found", c.Found, []int{0, 2, 0})
}

func claimSeveralTypes(k *kit) {
	renamed := k.message("c")
	renamed.PayloadType = "old name"
	k.insert(renamed)
	k.add("c", 2)
	c := k.claim(request("a", want("c", 10), store.Want{Consumer: "c", Payload: "old name", Limit: 10}))
	equal(k, "messages", idsOf(c), k.pending())
	equal(k, "found", c.Found, []int{2, 1})
	equal(k, "claims", len(k.claims()), 1)
}

// renamed asks for messages under the payload type's name of today and two of old.
func renamed(consumer string, limit int) (wants []store.Want) {
	for _, name := range []string{payload, "it's old", "older"} {
		wants = append(wants, store.Want{Consumer: consumer, Payload: name, Limit: limit})
	}
	return wants
}

func claimFormerTypes(k *kit) {
	for i, name := range []string{"older", payload, "foreign", "it's old", payload} {
		m := k.message("c")
		m.PayloadType, m.Payload = name, fmt.Sprint(i)
		k.insert(m)
	}
	other := k.message("d")
	other.PayloadType = "older"
	k.insert(other)
	ids := k.pending()
	r := request("a", append(renamed("c", 3), want("d", 3))...)
	r.Limit = 3
	c := k.claim(r)
	equal(k, "messages", idsOf(c), []int64{ids[0], ids[1], ids[3]})
	equal(k, "found", c.Found, []int{1, 1, 1, 0})
	equal(k, "the rest", idsOf(k.claim(request("a", renamed("c", 3)...))), ids[4:5])
}

func claimLimits(k *kit) {
	ofC, ofD, ofE := k.add("c", 5), k.add("d", 5), k.add("e", 1)
	c := k.claim(request("a", want("c", 3), want("d", 1), want("e", 4)))
	equal(k, "messages", idsOf(c), slices.Concat(ofC[:3], ofD[:1], ofE))
	equal(k, "found", c.Found, []int{3, 1, 1})
}

func claimLimitOfAll(k *kit) {
	ofC, ofD := k.add("c", 2), k.add("d", 2)
	r := request("a", want("c", 5), want("d", 5))
	r.Limit = 3
	k.cut("three of four", k.claim(r), append(slices.Clone(ofC), ofD[0]), true)
	k.cut("the last", k.claim(r), ofD[1:], false)
}

func claimLimitOldestFirst(k *kit) {
	ofD := k.add("d", 1)
	k.pass(time.Second)
	ofC := k.add("c", 2)
	k.pass(time.Second)
	ofD = append(ofD, k.add("d", 1)...)
	r := request("a", want("c", 5), want("d", 5))
	r.Limit = 2
	k.cut("the oldest", k.claim(r), []int64{ofD[0], ofC[0]}, true)
	k.cut("the rest", k.claim(r), []int64{ofC[1], ofD[1]}, false)
}

func claimOrder(k *kit) {
	ages := []time.Duration{3, 1, 2, 3, 2, 1, 3}
	consumers := []string{"c", "c", "d", "d", "c", "d", "c"}
	var rows []store.NewMessage
	for i, age := range ages {
		m := k.message(consumers[i])
		m.AvailableAt, m.Payload = epoch().Add(-age*time.Microsecond), fmt.Sprint(i)
		rows = append(rows, m)
	}
	for _, m := range rows { // one by one, so that ids follow
		k.insert(m)
	}
	var got []string
	for _, m := range k.claim(request("a", want("c", 10), want("d", 10))).Messages {
		got = append(got, string(m.Payload))
	}
	equal(k, "order of both", got, []string{"0", "3", "6", "2", "4", "1", "5"})
}

func claimAvailable(k *kit) {
	m := k.message("c")
	m.Delay = time.Minute
	k.insert(m)
	k.pass(time.Minute - time.Microsecond)
	if c := k.claim(request("a", want("c", 1))); c.ID != 0 {
		k.Errorf("claim a microsecond early: got messages %v, want none", idsOf(c))
	}
	k.pass(time.Microsecond)
	k.take("a", "c", k.pending()...)
}

func claimOnce(k *kit) {
	ids := k.add("c", 4)
	k.take("a", "c", ids[:2]...)
	for _, owner := range []string{"a", "b"} {
		if c := k.claim(request(owner, want("c", 1))); len(c.Messages) != 1 || slices.Contains(ids[:2], c.Messages[0].ID) {
			k.Errorf("claim of owner %s: got messages %v, want one of %v", owner, idsOf(c), ids[2:])
		}
	}
	if c := k.claim(request("b", want("c", 1))); c.ID != 0 {
		k.Errorf("claim with everything claimed: got messages %v, want none", idsOf(c))
	}
	equal(k, "claims", len(k.claims()), 3)
}

func claimExpired(k *kit) {
	ids := k.add("c", 2)
	k.take("a", "c", ids...)
	k.pass(24 * time.Hour)
	if c := k.claim(request("b", want("c", 2))); c.ID != 0 {
		k.Errorf("claim of what an expired claim holds: got messages %v, want none before it is recovered", idsOf(c))
	}
}

func claimAtOnce(k *kit) {
	const n = 120
	ids := k.add("c", n)
	var mu sync.Mutex
	var got []int64
	errs := together(8, func(i int) error {
		for {
			c, err := k.store.Claims.Claim(k.ctx, k.db, request(fmt.Sprint("owner ", i), want("c", 7)))
			if err != nil {
				return err
			}
			mu.Lock()
			got = append(got, idsOf(c)...)
			all := len(got) >= n
			mu.Unlock()
			if all {
				return nil
			}
		}
	})
	for _, err := range errs {
		k.Errorf("claim: got error %v, want none", err)
	}
	slices.Sort(got)
	equal(k, "messages claimed by all", got, ids)
}

// claimAtOnceByRate has a rate that allows three messages of each consumer within the hour.
func claimAtOnceByRate(k *kit) {
	for round := range 10 {
		consumer := fmt.Sprint("c", round)
		k.add(consumer, 9)
		claim := func(i int) (store.Claim, error) {
			r := request(fmt.Sprint("owner ", i), want(consumer, 1))
			r.Limit, r.Rate = 1, &store.Rate{Name: consumer, N: 1, Per: time.Hour, Burst: 4}
			return k.store.Claims.Claim(k.ctx, k.db, r)
		}
		// The first one writes the row of the rate, for which the others would wait.
		if c, err := claim(8); err != nil || len(c.Messages) != 1 {
			k.Fatalf("claim: got %d messages and error %v, want 1", len(c.Messages), err)
		}
		var mu sync.Mutex
		got := 0
		errs := together(8, func(i int) error {
			c, err := claim(i)
			mu.Lock()
			defer mu.Unlock()
			got += len(c.Messages)
			return err
		})
		for _, err := range errs {
			k.Errorf("claim: got error %v, want none", err)
		}
		if got != 3 {
			k.Errorf("claimed at once: got %d messages, want 3", got)
		}
	}
}

// claimReturns has five messages counted that did not start. They are returned at once: later, the rate would have regained them
// by itself.
func claimReturns(k *kit) {
	rate := store.Rate{Name: "c", N: 1, Per: time.Minute, Burst: 5}
	ask := func(unused int) []int64 {
		r := request("o", want("c", 10))
		r.Limit, r.Rate, r.Unused = 10, &rate, unused
		c := k.claim(r)
		if c.ID != 0 {
			k.finish("o", c.ID)
		}
		return idsOf(c)
	}
	first := k.add("c", 5)
	equal(k, "the burst", ask(0), first)
	equal(k, "while nothing is there", ask(5), nil)
	second := k.add("c", 6)
	equal(k, "what was returned", ask(0), second[:5])
	wait, err := k.store.Flow.RateWait(k.ctx, k.db, rate, 0)
	k.must("rate", err)
	equal(k, "wait", wait, time.Minute)
}

func claimRaised(k *kit) {
	for range 20 {
		k.insert(k.message("plain"))
	}
	k.raises(0, func(rate store.Rate) store.ClaimRequest {
		r := request("o", want("plain", 20))
		r.Limit, r.Rate = 20, &rate
		return r
	})
}

// raises has ten hours of a rate used, then sixty times as much allowed, and then the clock set back. The wait
// that is told follows at once, even before a claim.
func (k *kit) raises(lane int64, ask func(store.Rate) store.ClaimRequest) {
	k.Helper()
	k.pass(time.Hour) // all are due although the clock is set back
	for _, step := range []struct {
		pass, per time.Duration
		want      int
	}{{0, time.Hour, 10}, {0, time.Minute, 0}, {3 * time.Minute, time.Minute, 3}, {-time.Hour, time.Minute, 0},
		{2 * time.Minute, time.Minute, 2}} {
		k.pass(step.pass)
		rate, told := store.Rate{Name: "r", N: 1, Per: step.per, Burst: 10}, time.Duration(0)
		if step.want == 0 {
			told = step.per
		}
		wait, err := k.store.Flow.RateWait(k.ctx, k.db, rate, lane)
		k.must("rate", err)
		equal(k, "wait at "+k.now(), wait, told)
		c := k.claim(ask(rate))
		equal(k, "claimed at "+k.now()+" of one in "+step.per.String(), len(c.Messages), step.want)
		if c.ID != 0 {
			k.finish("o", c.ID)
		}
	}
}
