package storetest

import (
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func finishCases() []testCase {
	return []testCase{
		{"the messages of finished claims are removed", finishClaims},
		{"what is finished again is not there any more", finishTwice},
		{"only the owner's claims are finished", finishOwn},
		{"what was settled before stays as it is", finishAfterPart},
		{"eight of the same statement at once count once", finishAtOnce},
	}
}

func finishClaims(k *kit) {
	ids := k.add("c", 10)
	one, two, three := k.take("a", "c", ids[:3]...), k.take("a", "c", ids[3:5]...), k.take("a", "c", ids[5:9]...)
	equal(k, "finished", k.finish("a", one.ID, three.ID), []store.Finished{{Claim: one.ID, Messages: 3}, {Claim: three.ID, Messages: 4}})
	equal(k, "messages", k.pending(), slices.Concat(ids[3:5], ids[9:]))
	equal(k, "claims", len(k.claims()), 1)
	equal(k, "claim left", k.claims()[0].ID, two.ID)
	equal(k, "poisoned", k.poisoned(), nil)
}

func finishTwice(k *kit) {
	ids := k.add("c", 2)
	c := k.take("a", "c", ids[0])
	equal(k, "finished", k.finish("a", c.ID), []store.Finished{{Claim: c.ID, Messages: 1}})
	equal(k, "finished again", k.finish("a", c.ID), nil)
	equal(k, "finished under an unknown id", k.finish("a", c.ID+1000), nil)
	equal(k, "messages", k.pending(), ids[1:])
}

func finishOwn(k *kit) {
	ids := k.add("c", 3)
	mine, foreign := k.take("a", "c", ids[0]), k.take("b", "c", ids[1:]...)
	equal(k, "finished", k.finish("a", mine.ID, foreign.ID), []store.Finished{{Claim: mine.ID, Messages: 1}})
	equal(k, "messages", k.pending(), ids[1:])
	equal(k, "claims", k.claims()[0].Messages, list(ids[1:]...))
}

func finishAfterPart(k *kit) {
	ids := k.add("c", 4)
	c := k.take("a", "c", ids...)
	k.settle("a", append(results(c, store.Failed, ids[0]), results(c, store.Release, ids[2])...)...)
	stranger := k.take("b", "c", ids[0])
	equal(k, "finished", k.finish("a", c.ID), []store.Finished{{Claim: c.ID, Messages: 2}})
	equal(k, "messages", k.pending(), []int64{ids[0], ids[2]})
	equal(k, "claims", []int64{k.claims()[0].ID}, []int64{stranger.ID})
}

func finishAtOnce(k *kit) {
	ids := k.add("c", 10)
	one, two := k.take("a", "c", ids[:5]...), k.take("a", "c", ids[5:]...)
	finished := make([][]store.Finished, 8)
	errs := together(len(finished), func(i int) (err error) {
		claims := []int64{one.ID, two.ID}
		if i%2 == 0 {
			slices.Reverse(claims)
		}
		finished[i], err = k.store.Claims.Finish(k.ctx, k.db, "a", claims)
		return err
	})
	for _, err := range errs {
		k.Errorf("finish: got error %v, want none", err)
	}
	equal(k, "claims finished by all", len(slices.Concat(finished...)), 2)
	equal(k, "messages", k.pending(), nil)
}
