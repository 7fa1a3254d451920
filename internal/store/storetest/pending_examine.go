package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func examineCases() []testCase {
	return []testCase{
		{"pages that examine some messages have all that match", examinePages},
		{"a page examines no more than it says", examineBounds},
		{"what has crashed is on the first page, however much waits", examineCrashed},
		{"the head of a payload is read", pendingHead},
		{"messages of a claim are listed", claimedMessages},
	}
}

// mixedWithKeys adds messages with keys to mixed, one of which has crashed and one failed.
func (k *kit) mixedWithKeys() {
	k.Helper()
	k.mixed()
	for i := range 9 {
		m := k.message([]string{"c", "z"}[i%2])
		m.OrderKey = fmt.Sprint("key", i%3)
		k.insert(m)
	}
	k.exec("UPDATE ? SET crashes = 1 WHERE id = 7", k.table("consumer_messages"))
	k.exec("UPDATE ? SET attempts = 2 WHERE id IN (2, 8)", k.table("consumer_messages"))
}

func examinePages(k *kit) {
	k.mixedWithKeys()
	for _, f := range []store.PendingFilter{
		{}, {Consumer: "c"}, {Consumer: "z"}, {Consumer: "none"}, {PayloadType: "other"}, {Consumer: "c", PayloadType: payload},
		{Crashed: true}, {Retrying: true},
		{State: store.Ready}, {State: store.Leased}, {State: store.Delayed}, {Consumer: "z", State: store.Ready}, {OlderThan: lease},
		{Key: "key1"}, {Consumer: "z", Key: "key1"}, {Consumer: "c", Key: "key"}, {Key: "key2", Retrying: true},
	} {
		want := idsOfPending(k.list(f, 100))
		slices.Sort(want)
		for _, most := range []int{1, 2, 3, 5, 8, 13, 19} {
			size := 1 + most%4
			var got []int64
			at := f
			for pages := 0; ; pages++ {
				found, err := k.store.Pending.Examine(k.ctx, k.db, at, most, size)
				k.must("examine", err)
				if len(found.Rows) > min(size, most) || pages > 40 {
					k.Fatalf("examine %d of %+v, page %d: got %d messages, want %d at most", most, f, pages, len(found.Rows), min(size, most))
				}
				got = append(got, idsOfPending(found.Rows)...)
				if !found.More {
					break
				}
				at.After = found.Next
			}
			slices.Sort(got)
			equal(k, fmt.Sprintf("examining %d, %d a page, of %+v", most, size, f), got, want)
		}
	}
	equal(k, "of a key", idsOfPending(k.list(store.PendingFilter{Key: "key1"}, 100)), []int64{10, 7, 13})
	found, err := k.store.Pending.Examine(k.ctx, k.db, store.PendingFilter{}, 100, 100)
	k.must("examine", err)
	equal(k, "the order without keys", idsOfPending(found.Rows)[:5], []int64{5, 1, 4, 3, 2})
	keys := store.Each(found.Rows[5:], func(p store.Pending) string { return p.ConsumerType })
	equal(k, "the order of consumers with keys", slices.IsSorted(keys), true)
	held := found.Rows[0]
	equal(k, "what holds a message", held.Owner, "a")
	equal(k, "what is not asked for", string(held.Payload)+string(held.Headers), "")
}

func examineBounds(k *kit) {
	k.add("c", 30)
	k.exec("UPDATE ? SET attempts = 1 WHERE id = 25", k.table("consumer_messages"))
	f := store.PendingFilter{Retrying: true}
	for page := range 3 {
		found, err := k.store.Pending.Examine(k.ctx, k.db, f, 10, 5)
		k.must("examine", err)
		equal(k, fmt.Sprintf("matches of page %d", page), len(found.Rows), page/2)
		equal(k, "the last one examined", found.Next.ID, int64(10*page+10))
		equal(k, "more", found.More, true)
		f.After = found.Next
	}
	found, err := k.store.Pending.Examine(k.ctx, k.db, f, 10, 5)
	k.must("examine the end", err)
	equal(k, "the end", len(found.Rows) == 0 && !found.More, true)
}

func examineCrashed(k *kit) {
	k.add("c", 30)
	m := k.message("d")
	m.OrderKey = "key"
	k.insert(m)
	k.exec("UPDATE ? SET crashes = 1 WHERE id = 25", k.table("consumer_messages"))
	k.exec("UPDATE ? SET crashes = 2 WHERE id = 31", k.table("consumer_messages"))
	found, err := k.store.Pending.Examine(k.ctx, k.db, store.PendingFilter{Crashed: true}, 10, 5)
	k.must("examine", err)
	equal(k, "the first page", idsOfPending(found.Rows), []int64{25, 31})
	equal(k, "more", found.More, false)
}

func pendingHead(k *kit) {
	m := k.message("c")
	m.Payload = `"äö€𝄞"`
	m.Headers = `{"h":"v"}`
	k.insert(m)
	for characters, want := range []string{"", `"`, `"ä`, `"äö`, `"äö€`, `"äö€𝄞`, m.Payload, m.Payload} {
		row, found, err := k.store.Pending.Head(k.ctx, k.db, 1, characters)
		k.must("head", err)
		equal(k, "head", fmt.Sprint(found, string(row.Payload), row.PayloadBytes, string(row.Headers)),
			fmt.Sprint(true, want, len(m.Payload), `{"h":"v"}`))
	}
	row, _, err := k.store.Pending.Get(k.ctx, k.db, 1, true)
	k.must("read", err)
	equal(k, "size", row.PayloadBytes, len(m.Payload))
	_, found, err := k.store.Pending.Head(k.ctx, k.db, 2, 1)
	k.must("head of nothing", err)
	equal(k, "found", found, false)
}

func claimedMessages(k *kit) {
	ids := k.add("c", 5)
	one, two := k.take("a", "c", ids[0], ids[1]), k.take("b", "c", ids[2])
	for claim, want := range map[int64][]int64{one.ID: ids[:2], two.ID: ids[2:3], one.ID + 1000: nil} {
		rows, err := k.store.Pending.ClaimedMessages(k.ctx, k.db, claim)
		k.must("list", err)
		equal(k, "messages of the claim", idsOfPending(rows), want)
	}
	k.pass(time.Second)
	_, err := k.store.Claims.Finish(k.ctx, k.db, "b", []int64{two.ID})
	k.must("finish", err)
	rows, err := k.store.Pending.ClaimedMessages(k.ctx, k.db, two.ID)
	k.must("list", err)
	equal(k, "messages of a settled claim", len(rows), 0)
}

// exec runs a statement of the test's own.
func (k *kit) exec(query string, args ...any) {
	k.Helper()
	_, err := k.db.NewRaw(query, args...).Exec(k.ctx)
	k.must("statement of the test", err)
}
