package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func claimPlaceCases() []testCase {
	return []testCase{
		{"a claim tells where each want began and ended", claimPositions},
		{"a hint skips what lies up to it", claimHint},
		{"a hint at the same instant goes by id", claimHintSameInstant},
		{"what a hint skipped is found from the start", claimFromStart},
		{"a claim is cut at its bytes", claimBytes},
		{"the first message is taken however large it is", claimFirstTooLarge},
		{"a claim that just fits is not cut", claimBytesExact},
		{"bytes are counted, not characters", claimBytesNotRunes},
		{"the bytes are shared by all wants", claimBytesShared},
	}
}

// aged inserts messages that have been due for so many seconds, and returns
// their places.
func (k *kit) aged(consumer string, ages ...int) []store.Position {
	k.Helper()
	var places []store.Position
	for _, age := range ages {
		m := k.message(consumer)
		m.AvailableAt = epoch().Add(-time.Duration(age) * time.Second)
		k.insert(m)
		places = append(places, store.Position{At: m.AvailableAt, ID: slices.Max(k.pending())})
	}
	return places
}

// places makes positions comparable and readable.
func places(positions ...store.Position) []string {
	var out []string
	for _, p := range positions {
		out = append(out, fmt.Sprintf("%s #%d", span(p.At), p.ID))
	}
	return out
}

func claimPositions(k *kit) {
	ofC, ofD := k.aged("c", 5, 1, 9, 7), k.aged("d", 3, 2)
	c := k.claim(request("a", want("c", 3), want("none", 3), want("d", 3)))
	equal(k, "the oldest of each", idsOf(c), []int64{ofC[2].ID, ofC[3].ID, ofC[0].ID, ofD[0].ID, ofD[1].ID})
	equal(k, "found", c.Found, []int{3, 0, 2})
	equal(k, "last", places(c.Last...), places(ofC[0], store.Position{}, ofD[1]))
}

// after asks for messages behind a place.
func after(consumer string, limit int, place store.Position) store.Want {
	w := want(consumer, limit)
	w.After = place
	return w
}

func claimHint(k *kit) {
	ofC, ofD := k.aged("c", 5, 4, 3, 2, 1), k.aged("d", 9)
	c := k.claim(request("a", after("c", 2, ofC[1]), want("d", 1)))
	equal(k, "behind the second", idsOf(c), []int64{ofD[0].ID, ofC[2].ID, ofC[3].ID})
	equal(k, "last", places(c.Last[0]), places(ofC[3]))
	c = k.claim(request("a", after("c", 2, c.Last[0])))
	equal(k, "behind the last claim", idsOf(c), []int64{ofC[4].ID})
	if c := k.claim(request("a", after("c", 2, ofC[4]))); c.ID != 0 {
		k.Errorf("behind everything: got messages %v, want none", idsOf(c))
	}
}

func claimHintSameInstant(k *kit) {
	ids := k.add("c", 4)
	c := k.take("a", "c", ids[:2]...)
	c = k.claim(request("a", after("c", 10, c.Last[0])))
	equal(k, "messages behind one of the same instant", idsOf(c), ids[2:])
}

func claimFromStart(k *kit) {
	at := k.aged("c", 5, 4, 3)
	c := k.claim(request("a", want("c", 2)))
	k.settle("a", results(c, store.Release, at[0].ID)...)
	behind := k.claim(request("a", after("c", 2, c.Last[0])))
	equal(k, "behind the hint", idsOf(behind), []int64{at[2].ID})
	k.take("a", "c", at[0].ID)
}

// sized inserts messages with payloads of so many bytes.
func (k *kit) sized(consumer string, sizes ...int) []int64 {
	k.Helper()
	before := k.pending()
	var rows []store.NewMessage
	for _, size := range sizes {
		m := k.message(consumer)
		m.Payload = strings.Repeat("x", size)
		rows = append(rows, m)
	}
	k.insert(rows...)
	return k.pending()[len(before):]
}

// within is a request with a budget of bytes.
func within(bytes int, wants ...store.Want) store.ClaimRequest {
	r := request("a", wants...)
	r.MaxBytes = bytes
	return r
}

func (k *kit) cut(what string, c store.Claim, ids []int64, cut bool) {
	k.Helper()
	equal(k, what, idsOf(c), ids)
	equal(k, what+", cut", c.Cut, cut)
}

func claimBytes(k *kit) {
	ids := k.sized("c", 100, 100, 100, 100, 100)
	c := k.claim(within(250, want("c", 10)))
	k.cut("the first two of five", c, ids[:2], true)
	equal(k, "last", c.Last[0].ID, ids[1])
	k.cut("behind the last", k.claim(within(250, after("c", 10, c.Last[0]))), ids[2:4], true)
	k.cut("the one that is left", k.claim(within(250, want("c", 10))), ids[4:], false)
	equal(k, "claims", len(k.claims()), 3)
}

func claimFirstTooLarge(k *kit) {
	ids := k.sized("c", 1000, 10)
	k.cut("first", k.claim(within(100, want("c", 10))), ids[:1], true)
	k.cut("second", k.claim(within(0, want("c", 10))), ids[1:], false)
}

func claimBytesExact(k *kit) {
	ids := k.sized("c", 100, 150)
	k.cut("both", k.claim(within(250, want("c", 10))), ids, false)
}

func claimBytesNotRunes(k *kit) {
	for range 3 {
		m := k.message("c")
		m.Payload = strings.Repeat("é🙂", 10) // 60 bytes
		k.insert(m)
	}
	k.cut("of three with 60 bytes in 20 characters", k.claim(within(150, want("c", 10))), k.pending()[:2], true)
}

func claimBytesShared(k *kit) {
	ofC, ofD := k.sized("c", 100, 100), k.sized("d", 100, 100)
	k.cut("of both", k.claim(within(300, want("c", 10), want("d", 10))), append(slices.Clone(ofC), ofD[0]), true)
}
