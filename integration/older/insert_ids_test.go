package older_test

import (
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestReplacedWhileAnOlderProgramRuns: what an older processor has run when its message was
// replaced removes nothing, and the newest payload runs. An older producer leaves it alone.
func TestReplacedWhileAnOlderProgramRuns(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		for _, outcome := range []string{"", "no luck"} {
			var runs journal
			n, p := newNewer(t, d, &runs, runs.consume("c")), startOlder(t, d, "c")
			p.do(command{Do: "run"})
			n.Produce(job{N: 1, Blocks: true}, outbox.Replace("k"))
			testapp.Eventually(t, "it runs", func() bool { return p.begun() == 1 })
			n.produce([]int{2}, outbox.Debounce("k", time.Hour, time.Hour))
			n.produce([]int{3}, outbox.Replace("k"))
			p.do(command{Do: "release", Error: outcome})
			p.do(command{Do: "stop"})
			if written := p.do(command{Do: "produce", Jobs: []job{{N: 4}}, InsertID: "k"}); written != 0 {
				t.Errorf("an older producer: got %d rows, want none while the key is pending", written)
			}
			wantNumbers(t, "while it waits for quiet, the older program ran", p.drain())
			if rows := n.Pending(); len(rows) != 1 || rows[0].Attempts != 0 {
				t.Fatalf("got %+v, want the newest, without an attempt", rows)
			}
			if _, err := n.Admin().RunNow(t.Context(), d.db, n.ids()...); err != nil {
				t.Fatal(err)
			}
			before := len(p.done("c"))
			p.drain()
			wantNumbers(t, "the older program ran", p.done("c")[before:], 3)
		}
	}, notMariaDB()...)
}

// TestUniqueForIsUnknown: what an older processor has consumed is not remembered, and an older
// producer does not ask for what is.
func TestUniqueForIsUnknown(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		var runs journal
		n, p := newNewer(t, d, &runs, runs.consume("c")), startOlder(t, d, "c")
		produce := func(number int) int {
			return n.Produce(job{N: number}, outbox.UniqueFor("k", time.Hour)).Enqueued
		}
		produce(1)
		wantNumbers(t, "the older program ran", p.drain(), 1)
		if produce(2) != 1 {
			t.Error("after the older program has consumed the key: it is taken, want it free")
		}
		wantNumbers(t, "the newer program ran", n.drain("c"), 2)
		if produce(3) != 0 {
			t.Error("after the newer program has consumed the key: it is free, want it taken")
		}
		if written := p.do(command{Do: "produce", Jobs: []job{{N: 4}}, InsertID: "k"}); written != 1 {
			t.Errorf("an older producer: got %d rows, want 1", written)
		}
	}, notMariaDB()...)
}
