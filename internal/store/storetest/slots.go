package storetest

import "time"

func slotCases() []testCase {
	return []testCase{
		{"a clock that is set back delays the slots of the dead by a lease at most", slotsSetBack},
	}
}

// takeSlot takes the only slot of a limit, and returns how many it got.
func (k *kit) takeSlot(owner string) int {
	k.Helper()
	taken, err := k.store.Flow.TakeSlots(k.ctx, k.db, owner, "s", 1, 1, lease)
	k.must("take", err)
	return len(taken)
}

func (k *kit) slotsWanted(owner string) bool {
	k.Helper()
	wanted, err := k.store.Flow.SlotsWanted(k.ctx, k.db, owner, []string{"s"})
	k.must("read requests", err)
	return len(wanted) > 0
}

// slotsSetBack has the database's clock set back by an hour, while a slot is leased and wanted, and once it is free.
func slotsSetBack(k *kit) {
	equal(k, "taken by a process that dies", k.takeSlot("dead"), 1)
	equal(k, "taken by one that has to wait", k.takeSlot("waiting"), 0)
	equal(k, "wanted", k.slotsWanted("dead"), true)
	k.pass(-time.Hour)
	equal(k, "wanted by the process of an hour later", k.slotsWanted("dead"), false)
	equal(k, "taken, although its owner may live", k.takeSlot("next"), 0)
	equal(k, "wanted again", k.slotsWanted("dead"), true)
	k.pass(lease - time.Second)
	equal(k, "taken before the lease ends", k.takeSlot("next"), 0)
	k.pass(time.Second)
	equal(k, "taken when the lease ends", k.takeSlot("next"), 1)
	k.must("return", k.store.Flow.ReturnSlots(k.ctx, k.db, "next", "s", []int{1}))
	k.pass(-time.Hour)
	equal(k, "taken once it was returned", k.takeSlot("last"), 1)
}
