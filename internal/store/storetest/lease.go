package storetest

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func leaseCases() []testCase {
	return []testCase{
		{"extend renews and returns everything the owner holds", extendOwn},
		{"extend of nothing returns nothing", extendNothing},
		{"extend revives what has expired but was not taken", extendRevives},
		{"extend does not return what was taken away", extendLost},
		{"disclaim gives back untouched what the owner holds", disclaimOwn},
	}
}

func extendOwn(k *kit) {
	ids := k.add("c", 5)
	one, two := k.take("a", "c", ids[0]), k.take("a", "c", ids[1], ids[2])
	k.take("b", "c", ids[3])
	k.pass(10 * time.Second)
	three := k.take("a", "c", ids[4])
	want := k.claims()
	k.pass(10 * time.Second)
	equal(k, "held", k.extend("a"), []int64{one.ID, two.ID, three.ID})
	for i := range want {
		if want[i].Owner == "a" {
			want[i].LeasedTo = k.in(lease)
		}
	}
	equal(k, "claims", k.claims(), want)
}

func extendNothing(k *kit) {
	k.take("a", "c", k.add("c", 1)...)
	before := k.claims()
	k.pass(time.Second)
	equal(k, "held", k.extend("b"), nil)
	equal(k, "claims", k.claims(), before)
}

func extendRevives(k *kit) {
	ids := k.add("c", 1)
	c := k.take("a", "c", ids...)
	k.pass(24 * time.Hour)
	equal(k, "held", k.extend("a"), []int64{c.ID})
	equal(k, "recovered", k.recover(3), store.Recovered{})
	equal(k, "settled", k.settle("a", results(c, store.Done, ids...)...), store.Settled{Live: []int64{c.ID}, Applied: 1})
}

func extendLost(k *kit) {
	ids := k.add("c", 3)
	k.take("a", "c", ids[0])
	k.pass(2 * lease)
	k.recover(3)
	kept, ended := k.take("a", "c", ids[1]), k.take("a", "c", ids[2])
	k.finish("a", ended.ID)
	equal(k, "held", k.extend("a"), []int64{kept.ID})
}

func disclaimOwn(k *kit) {
	ids := k.add("c", 4)
	k.crash("c", 1)
	before := k.messages()
	one := k.claim(crashed("a", store.Suspects, 1, want("c", 1)))
	two := k.claim(crashed("a", store.Suspects, 1, want("c", 1)))
	three := k.claim(crashed("a", store.Suspects, 1, want("c", 1)))
	foreign := k.claim(crashed("b", store.Suspects, 1, want("c", 1)))
	for range 2 {
		k.must("disclaim", k.store.Claims.Disclaim(k.ctx, k.db, "a", []int64{three.ID, foreign.ID, one.ID, 1_000_000}))
	}
	equal(k, "messages", k.messages(), before)
	equal(k, "claims left", []int64{k.claims()[0].ID, k.claims()[1].ID}, []int64{two.ID, foreign.ID})
	equal(k, "settled under a disclaimed claim", k.settle("a", results(one, store.Done, ids[0])...), store.Settled{})
	c := k.claim(crashed("c", store.Suspects, 8, want("c", 1)))
	equal(k, "claimed again", idsOf(c), []int64{ids[0], ids[2]})
}
