//go:build unix

package main

// waitAllMutants break the end of groups.
func waitAllMutants() []mutant {
	groups := func(database, names string) suite { return inStore("TestStore/" + database + "/groups/" + names) }
	return []mutant{
		{"groups: a member that is being produced is overlooked", in("OutboxStore.share", text("{lock shared}", "")),
			groups("postgres", "a_member_that*"), `fired before the member is committed`},
		{"groups: an end with pending members", in("doneSQL", text("m.group_key = g.name", "m.group_key = g.name AND 1 = 0")),
			groups("sqlite", "a_group_is_done*"), `with members`},
		{"groups: an end by two at once", in("GroupStore.Fire", text("{lock free}", "")), groups("postgres", "a_group_that_is_ending*"), `want it to leave the group alone`},
		{"groups: a requeued message has left its group", in("Returning.RequeueAs", text("{now}, p.steps, p.order_key, p.lane, p.rank, p.group_key", "{now}, p.steps, p.order_key, p.lane, p.rank, NULL")),
			groups("sqlite", "the_group_stays*"), `requeued`},
		{"groups: one that is locked delays the others", in("groupSweeper.fireAll", replace("firstTry", "statementTimeout")),
			inOutbox("TestALockedGroupDoesNotDelayTheOthers"), `want it within 10 s`},
		{"groups: what a newer release adds is dropped", in("UnmarshalKnown", drop("strict.DisallowUnknownFields()")),
			groups("sqlite", "a_group_of_a_newer*"), `fire what has an unknown field`},
	}
}
