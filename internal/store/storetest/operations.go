package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func operationCases() []testCase {
	return []testCase{
		{"an operation is kept as it was written", operationKept},
		{"a change goes by the state", operationStates},
		{"one of many may start an operation", operationTogether},
		{"one owner at a time works on an operation", operationLeases},
		{"deaths of an operation's owners are counted until it gets on", operationDeaths},
		{"a step is part of a transaction", operationSteps},
		{"operations are locked in the order of their ids", operationsLocked},
		{"tables are found by their names", tablesFound},
		{"old operations are forgotten", operationsForgotten},
	}
}

func (k *kit) plan() int64 {
	k.Helper()
	id, err := k.store.Operations.Add(
		k.ctx,
		k.db,
		store.Operation{
			Kind:    "requeue",
			Actor:   "ada",
			Target:  []byte(`{"a":1}`),
			Preview: []byte(`{"n":2}`),
			State:   "planned",
			Rate:    100,
			UpToID:  7,
		},
		false,
	)
	k.must("add", err)
	return id
}

func (k *kit) operation(id int64) store.Operation {
	k.Helper()
	found, err := k.store.Operations.List(k.ctx, k.db, store.OperationFilter{ID: id}, 10)
	k.must("operations", err)
	if len(found) != 1 {
		k.Fatalf("got %d operations, want one", len(found))
	}
	return found[0]
}

func (k *kit) changeOperation(id int64, from string, c store.OperationChange) bool {
	k.Helper()
	changed, err := k.store.Operations.Change(k.ctx, k.db, store.OperationFilter{ID: id, States: []string{from}}, c)
	k.must("change", err)
	return changed
}

func operationKept(k *kit) {
	first := k.plan()
	k.pass(time.Second)
	second, err := k.store.Operations.Add(
		k.ctx, k.db, store.Operation{Kind: "pause", Actor: "bob", Reason: "it burns", State: "done", Changed: 3}, true,
	)
	k.must("add", err)
	if second <= first {
		k.Errorf("got id %d after %d", second, first)
	}
	o := k.operation(first)
	equal(k, "written", []string{o.Kind, o.Actor, string(o.Target), string(o.Preview), o.State, o.LeasedBy},
		[]string{"requeue", "ada", `{"a":1}`, `{"n":2}`, "planned", ""})
	equal(k, "numbers", []int64{o.Rate, o.UpToID, o.AfterID, o.Changed}, []int64{100, 7, 0, 0})
	equal(k, "age", o.Now.Sub(o.CreatedAt.Time), time.Second)
	equal(k, "open", o.StartsAt.IsZero() && o.FinishedAt.IsZero(), true)
	equal(k, "finished", k.operation(second).FinishedAt.IsZero(), false)
	found, err := k.store.Operations.List(k.ctx, k.db, store.OperationFilter{}, 10)
	k.must("operations", err)
	equal(k, "listed", store.Each(found, func(o store.Operation) int64 { return o.ID }), []int64{second, first})
	found, err = k.store.Operations.List(
		k.ctx, k.db, store.OperationFilter{Before: second, States: []string{"planned", "done"}, Kinds: []string{"requeue"}}, 10,
	)
	k.must("operations", err)
	equal(k, "listed before", store.Each(found, func(o store.Operation) int64 { return o.ID }), []int64{first})
}

func operationStates(k *kit) {
	id := k.plan()
	note := "gone"
	equal(k, "planned", k.changeOperation(id, "waiting", store.OperationChange{State: "undone"}), false)
	equal(k, "as it was", k.operation(id).State, "planned")
	equal(k, "waits",
		k.changeOperation(id, "planned", store.OperationChange{State: "waiting", StartsIn: time.Minute, Reason: "why", Rate: 5}), true)
	equal(k, "ends", k.changeOperation(id, "waiting", store.OperationChange{State: "undone", Note: &note, Finished: true}), true)
	o := k.operation(id)
	equal(k, "said", []string{o.State, o.Reason, o.Note}, []string{"undone", "why", "gone"})
	equal(k, "starts in", o.StartsAt.Sub(o.CreatedAt.Time), time.Minute)
	if _, err := k.store.Operations.Change(k.ctx, k.db, store.OperationFilter{ID: id}, store.OperationChange{}); err == nil {
		k.Error("a change of nothing is no error")
	}
}

func operationTogether(k *kit) {
	id := k.plan()
	var started atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if k.changeOperation(id, "planned", store.OperationChange{State: "waiting", StartsIn: time.Second}) {
				started.Add(1)
			}
		})
	}
	all.Wait()
	equal(k, "started by", int(started.Load()), 1)
}

func (k *kit) lease(id int64, owner string) bool {
	k.Helper()
	may, err := k.store.Operations.Lease(
		k.ctx, k.db, store.OperationFilter{ID: id, States: []string{"waiting"}, Free: true}, owner, 10*time.Second,
	)
	k.must("lease", err)
	return may
}

func operationLeases(k *kit) {
	id := k.plan()
	equal(k, "not started", k.lease(id, "a"), false)
	k.changeOperation(id, "planned", store.OperationChange{State: "waiting", StartsIn: 5 * time.Second})
	equal(k, "too early", k.lease(id, "a"), false)
	k.pass(5 * time.Second)
	free, err := k.store.Operations.List(k.ctx, k.db, store.OperationFilter{States: []string{"waiting"}, Free: true}, 10)
	k.must("operations", err)
	equal(k, "free", len(free), 1)
	var leased atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if k.lease(id, "a") {
				leased.Add(1)
			}
		})
	}
	all.Wait()
	equal(k, "leased by", int(leased.Load()), 1)
	k.pass(9 * time.Second)
	k.changeOperation(id, "waiting", store.OperationChange{Lease: 10 * time.Second})
	k.pass(9 * time.Second)
	equal(k, "renewed", k.lease(id, "b"), false)
	k.pass(2 * time.Second)
	equal(k, "run out", k.lease(id, "b"), true)
	k.changeOperation(id, "waiting", store.OperationChange{Free: true})
	equal(k, "given back", k.lease(id, "c"), true)
}

func operationDeaths(k *kit) {
	id := k.plan()
	k.changeOperation(id, "planned", store.OperationChange{State: "waiting", StartsIn: time.Second})
	for _, step := range []struct {
		owner  string
		before store.OperationChange
		want   int64
	}{
		{owner: "a", want: 0},
		{owner: "b", want: 1},
		{owner: "b", want: 1}, // which was late, and lives
		{owner: "c", want: 2},
		{owner: "d", before: store.OperationChange{Lease: time.Second}, want: 3}, // only renewed
		{owner: "e", before: store.OperationChange{Changed: 1}, want: 1},
		{owner: "f", before: store.OperationChange{AfterID: 7}, want: 1},
		{owner: "g", before: store.OperationChange{Free: true}, want: 0},
		{owner: "h", before: store.OperationChange{LeftAlone: 1}, want: 1},
	} {
		k.pass(11 * time.Second)
		if step.before.Lease != 0 || step.before.Free || step.before.Changed+step.before.AfterID+step.before.LeftAlone > 0 {
			k.changeOperation(id, "waiting", step.before)
			k.pass(2 * time.Second)
		}
		equal(k, "leased by "+step.owner, k.lease(id, step.owner), true)
		equal(k, "deaths before "+step.owner, k.operation(id).Deaths, step.want)
	}
	k.pass(11 * time.Second)
	filter := store.OperationFilter{ID: id, States: []string{"waiting"}, Free: true, Idle: "waiting"}
	leased, err := k.store.Operations.Lease(k.ctx, k.db, filter, "i", 10*time.Second)
	k.must("lease", err)
	equal(k, "leased by i", leased, true)
	equal(k, "deaths in a state in which nothing runs", k.operation(id).Deaths, 1)
}

func operationSteps(k *kit) {
	id := k.plan()
	step := func(commit bool) {
		tx, err := k.db.BeginTx(k.ctx, nil)
		k.must("begin", err)
		defer func() { _ = tx.Rollback() }()
		o, found, err := k.store.Operations.Lock(k.ctx, tx, id)
		k.must("lock", err)
		equal(k, "found", found, true)
		_, err = k.store.Operations.Change(k.ctx, tx, store.OperationFilter{ID: id},
			store.OperationChange{AfterID: o.AfterID + 2, Changed: 2, LeftAlone: 1, Canaries: []byte(`[1]`)})
		k.must("step", err)
		if commit {
			k.must("commit", tx.Commit())
		}
	}
	step(true)
	step(false)
	step(true)
	o := k.operation(id)
	equal(k, "steps", []int64{o.AfterID, o.Changed, o.Skipped}, []int64{4, 4, 2})
	equal(k, "canaries", string(o.Canaries), `[1]`)
	k.must("transaction", k.db.RunInTx(k.ctx, nil, func(_ context.Context, tx bun.Tx) error {
		_, found, err := k.store.Operations.Lock(k.ctx, tx, id+1000)
		equal(k, "another", found, false)
		return err
	}))
}

func operationsLocked(k *kit) {
	first, second := k.plan(), k.plan()
	k.plan() // which is left alone
	k.changeOperation(first, "planned", store.OperationChange{State: "waiting", StartsIn: time.Second})
	k.must("transaction", k.db.RunInTx(k.ctx, nil, func(_ context.Context, tx bun.Tx) error {
		rows, err := k.store.Operations.LockMany(
			k.ctx, tx,
			store.OperationFilter{IDs: []int64{second, first}, Kinds: []string{"requeue"}, States: []string{"planned", "waiting"}},
		)
		equal(k, "locked", store.Each(rows, func(o store.Operation) int64 { return o.ID }), []int64{first, second})
		equal(k, "states", store.Each(rows, func(o store.Operation) string { return o.State }), []string{"waiting", "planned"})
		return err
	}))
}

func tablesFound(k *kit) {
	found, err := k.store.Schema.Installed(k.ctx, k.db)
	k.must("installed", err)
	if len(found) == 0 {
		k.Error("installed: got none, want these tables at least")
	}
}

func operationsForgotten(k *kit) {
	k.plan()
	k.pass(91 * 24 * time.Hour)
	young := k.plan()
	_, err := k.store.Reports.ForgetReports(k.ctx, k.db, 100)
	k.must("forget", err)
	found, err := k.store.Operations.List(k.ctx, k.db, store.OperationFilter{}, 10)
	k.must("operations", err)
	equal(k, "left", store.Each(found, func(o store.Operation) int64 { return o.ID }), []int64{young})
}
