package storetest

import (
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func claimCrashedCases() []testCase {
	return []testCase{
		{"messages are claimed apart by how often they crashed", claimApart},
		{"crashed messages have one limit for all wants", claimCrashedLimit},
		{"crashed messages of others are not claimed", claimCrashedWanted},
		{"crashed messages are claimed once, in order", claimCrashedOnce},
		{"crashed messages of a former payload type are claimed", claimCrashedFormer},
		{"crashed messages that are locked hide no others", claimCrashedBehind},
		{"no crashed messages are claimed without wants", claimCrashedNobody},
	}
}

func claimCrashedBehind(k *kit) {
	if !k.store.RowLocks() {
		return
	}
	ids := k.add("c", 5)
	k.crash("c", 2)
	tx, err := k.db.BeginTx(k.ctx, readCommitted(k))
	k.must("begin", err)
	defer tx.Rollback()          //nolint:errcheck // nothing is written
	for _, id := range ids[:2] { // each by itself: a scan would lock more
		_, err = tx.NewRaw("SELECT id FROM ? WHERE id = ? FOR UPDATE", k.table("consumer_messages"), id).Exec(k.ctx)
		k.must("lock", err)
	}
	equal(k, "killer behind what is locked", idsOf(k.claim(crashed("a", store.Killers, 1, want("c", 1)))), ids[2:3])
	equal(k, "the rest", idsOf(k.claim(crashed("a", store.Killers, 10, want("c", 1)))), ids[3:])
}

func claimCrashedNobody(k *kit) {
	k.add("c", 1)
	k.crash("c", 1)
	c, err := k.store.Claims.Claim(k.ctx, k.db, crashed("a", store.Suspects, 10))
	k.must("claim", err)
	equal(k, "messages", idsOf(c), nil)
}

func claimApart(k *kit) {
	killer := k.add("c", 1)
	k.crash("c", 2)
	worse := k.add("d", 1)
	k.crash("d", 5)
	suspects := k.add("e", 2)
	k.crash("e", 1)
	clean := k.add("c", 2)
	wants := []store.Want{want("c", 10), want("d", 10), want("e", 10)}

	c := k.claim(request("a", wants...))
	equal(k, "clean messages", idsOf(c), clean)
	equal(k, "found", c.Found, []int{2, 0, 0})
	equal(k, "suspects", idsOf(k.claim(crashed("a", store.Suspects, 10, wants...))), suspects)
	c = k.claim(crashed("a", store.Killers, 10, wants...))
	equal(k, "killers", idsOf(c), slices.Concat(killer, worse))
	equal(k, "crashes of killers", []int{c.Messages[0].Crashes, c.Messages[1].Crashes}, []int{2, 5})
	var solo []bool
	for _, claim := range k.claims() {
		solo = append(solo, claim.Solo)
	}
	equal(k, "solo", solo, []bool{false, false, true})
}

func claimCrashedLimit(k *kit) {
	ofC, ofD := k.add("c", 3), k.add("d", 3)
	k.crash("c", 1)
	k.crash("d", 1)
	c := k.claim(crashed("a", store.Suspects, 4, want("c", 1), want("d", 1)))
	equal(k, "messages", idsOf(c), slices.Concat(ofC, ofD[:1]))
	equal(k, "the rest", idsOf(k.claim(crashed("a", store.Suspects, 4, want("c", 1), want("d", 1)))), ofD[1:])
}

func claimCrashedWanted(k *kit) {
	other := k.message("c")
	other.PayloadType = "other"
	k.insert(other)
	k.add("d", 1)
	for _, w := range []store.Want{{Consumer: "c", Payload: "other", Limit: 1}, want("d", 1)} {
		equal(k, "messages that vanish", len(k.claim(request("vanishing", w)).Messages), 1)
	}
	k.pass(2 * lease)
	k.recover(3)
	for _, selection := range []store.Selection{store.Clean, store.Suspects, store.Killers} {
		if c := k.claim(crashed("a", selection, 10, want("c", 10))); c.ID != 0 {
			k.Errorf("selection %d: got messages %v, want none", selection, idsOf(c))
		}
	}
	all := crashed("a", store.Suspects, 10, store.Want{Consumer: "c", Payload: "other", Limit: 10}, want("d", 10))
	equal(k, "crashed messages of the others", len(k.claim(all).Messages), 2)
}

func claimCrashedOnce(k *kit) {
	at := k.aged("c", 1, 3, 2)
	k.crash("c", 1)
	c := k.claim(crashed("a", store.Suspects, 2, want("c", 1)))
	equal(k, "oldest two", idsOf(c), []int64{at[1].ID, at[2].ID})
	equal(k, "left over", idsOf(k.claim(crashed("b", store.Suspects, 2, want("c", 1)))), []int64{at[0].ID})
	if c := k.claim(crashed("b", store.Suspects, 2, want("c", 1))); c.ID != 0 {
		k.Errorf("everything claimed: got messages %v, want none", idsOf(c))
	}
}

func claimCrashedFormer(k *kit) {
	m := k.message("c")
	m.PayloadType = "older"
	k.insert(m)
	k.claim(request("vanishing", renamed("c", 1)...))
	k.pass(2 * lease)
	k.recover(3)
	if c := k.claim(crashed("a", store.Suspects, 8, want("c", 1))); c.ID != 0 {
		k.Errorf("claim without the former type: got messages %v, want none", idsOf(c))
	}
	k.poll("one crashed under a former type", store.Poll{Suspects: []int{2}}, renamed("c", 1)...)
	equal(k, "messages", idsOf(k.claim(crashed("a", store.Suspects, 8, renamed("c", 1)...))), k.pending())
}
