package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func reportCases() []testCase {
	return []testCase{
		{"a process is there until it says that it stops", reportPresence},
		{"tallies of a minute add up", reportMinutes},
		{"failures that belong together add up", reportFailures},
		{"failures are as old as their runs", reportFailureTimes},
		{"many report at once", reportTogether},
		{"of a consumer so many kinds of failures are kept", reportKinds},
		{"a process is there though the rest of its report cannot be written", reportWhole},
		{"who vanished with a message is known", reportCrashes},
		{"what is poisoned belongs together", reportPoisoned}, {"the last that was poisoned", reportLast},
		{"what is old is forgotten", reportForgotten},
	}
}

func process(id string) store.Process {
	return store.Process{
		ID:       id,
		Kind:     "processor",
		Host:     "h",
		PID:      7,
		Program:  "shop",
		Version:  "v1.2.3",
		Manifest: []byte(`{"c":1}`),
		State:    []byte(`{"running":1}`),
	}
}

func (k *kit) report(r store.Report) {
	k.Helper()
	k.must("report", k.store.Reports.Report(k.ctx, k.db, r))
}

func (k *kit) processes() []store.Process {
	k.Helper()
	found, err := k.store.Reports.Processes(k.ctx, k.db, time.Hour, 10)
	k.must("processes", err)
	return found
}

func reportPresence(k *kit) {
	k.report(store.Report{Process: process("a")})
	k.pass(15 * time.Second)
	k.report(store.Report{Process: process("b")})
	again := process("a")
	again.State, again.Manifest = []byte(`{"running":2}`), nil // which does not change
	k.pass(15 * time.Second)
	k.report(store.Report{Process: again})
	k.pass(time.Second)
	found := k.processes()
	if len(found) != 2 || found[0].ID != "a" || found[1].ID != "b" {
		k.Fatalf("got %+v, want a, which was seen last, and b", found)
	}
	a := found[0]
	equal(k, "seen for", a.SeenAt.Sub(a.StartedAt.Time), 30*time.Second)
	equal(k, "seen before", a.Now.Sub(a.SeenAt.Time), time.Second)
	equal(k, "stopped", a.StoppedAt.IsZero(), true)
	equal(k, "told", []string{a.Kind, a.Host, a.Program, a.Version, string(a.Manifest), string(a.State)},
		[]string{"processor", "h", "shop", "v1.2.3", `{"c":1}`, `{"running":2}`})
	equal(k, "pid", a.PID, 7)
	k.report(store.Report{Process: again, Stopped: true})
	equal(k, "stopped at", k.processes()[0].StoppedAt.Sub(a.SeenAt.Time), time.Second)
}

func tallied(done, retried int64) store.Tally {
	t := store.Tally{Done: done, Retried: retried}
	t.Run[0], t.Lag[store.Buckets-1] = done, retried
	return t
}

func (k *kit) minutes(consumers ...string) map[string][]store.Tally {
	k.Helper()
	found, err := k.store.Reports.Minutes(k.ctx, k.db, time.Hour, consumers)
	k.must("minutes", err)
	of := make(map[string][]store.Tally)
	for _, m := range found {
		if m.At.Second() != 0 || m.At.Nanosecond() != 0 {
			k.Errorf("got %s, want a whole minute", m.At)
		}
		of[m.ConsumerType] = append(of[m.ConsumerType], m.Tally)
	}
	return of
}

func reportMinutes(k *kit) {
	k.report(store.Report{
		Process: process("a"),
		Minutes: []store.Minute{{ConsumerType: "d", Tally: tallied(1, 0)}, {ConsumerType: "c", Tally: tallied(2, 1)}},
	})
	k.report(store.Report{Process: process("b"), Minutes: []store.Minute{{ConsumerType: "c", Tally: tallied(40, 20)}}})
	k.pass(time.Minute)
	k.report(store.Report{Process: process("a"), Minutes: []store.Minute{{ConsumerType: "c", Tally: tallied(3, 0)}}})
	want := map[string][]store.Tally{"c": {tallied(42, 21), tallied(3, 0)}, "d": {tallied(1, 0)}}
	equal(k, "minutes", k.minutes(), want)
	delete(want, "d")
	equal(k, "minutes of c", k.minutes("c", "none"), want)
	k.pass(59 * time.Minute)
	equal(k, "minutes of the last hour", k.minutes("c"), map[string][]store.Tally{"c": {tallied(3, 0)}})
}

func group(consumer, fingerprint, sample string, runs int64) store.FailureGroup {
	return store.FailureGroup{
		ConsumerType: consumer, Fingerprint: fingerprint, ErrorType: "t", Sample: sample, Runs: runs, FirstVersion: "v1", RowID: runs,
	}
}

func reportFailures(k *kit) {
	k.report(store.Report{Process: process("a"), Failures: []store.FailureGroup{group("c", "1b", "b 1", 1), group("c", "1a", "a 1", 2)}})
	k.pass(time.Minute)
	later := group("c", "1a", "a 2", 3)
	later.FirstVersion = "v2"
	k.report(store.Report{Process: process("b"), Failures: []store.FailureGroup{later, group("d", "1a", "d", 1)}})
	found, err := k.store.Reports.Failures(k.ctx, k.db, "c", 10)
	k.must("failures", err)
	if len(found) != 2 || found[0].LastAt.Sub(found[0].FirstAt.Time) != time.Minute || found[1].LastAt != found[1].FirstAt {
		k.Fatalf("got %+v, want two groups, of which the first lasts for a minute", found)
	}
	for i := range found {
		found[i].FirstAt.Time, found[i].LastAt.Time = time.Time{}, time.Time{}
	}
	want := group("c", "1a", "a 2", 5)
	want.RowID = 3
	equal(k, "failures", found, []store.FailureGroup{want, group("c", "1b", "b 1", 1)})
	all, err := k.store.Reports.Failures(k.ctx, k.db, "", 2)
	k.must("failures", err)
	equal(k, "of all consumers, the last two", []string{all[0].ConsumerType, all[1].ConsumerType}, []string{"c", "d"})
}

// reportFailureTimes: a failure is as old as its run, and not as its report, also of several that are counted together.
func reportFailureTimes(k *kit) {
	f := group("c", "1a", "a", 3)
	f.First, f.Last = time.Now().Add(-40*time.Second), time.Now().Add(-10*time.Second)
	k.report(store.Report{Process: process("a"), Failures: []store.FailureGroup{f}})
	found, err := k.store.Reports.Failures(k.ctx, k.db, "c", 10)
	k.must("failures", err)
	now := epoch().Add(time.Duration(k.elapse.Load()))
	equal(k, "first and last",
		[]time.Duration{now.Sub(found[0].FirstAt.Time).Round(5 * time.Second), now.Sub(found[0].LastAt.Time).Round(5 * time.Second)},
		[]time.Duration{40 * time.Second, 10 * time.Second})
}

func reportTogether(k *kit) {
	const processes, consumers, times = 6, 5, 10
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			for range times {
				r := store.Report{Process: process(fmt.Sprint(p))}
				for c := range consumers { // in orders of their own
					name := fmt.Sprint((c*(p%4+1) + p) % consumers)
					r.Minutes = append(r.Minutes, store.Minute{ConsumerType: name, Tally: tallied(1, 0)})
					r.Failures = append(r.Failures, group(name, "1a", "e", 1))
				}
				k.report(r)
			}
		})
	}
	wg.Wait()
	for name, tallies := range k.minutes() {
		equal(k, "done of "+name, tallies, []store.Tally{tallied(processes*times, 0)})
	}
	failures, err := k.store.Reports.Failures(k.ctx, k.db, "", 100)
	k.must("failures", err)
	for _, f := range failures {
		equal(k, "failures of "+f.ConsumerType, f.Runs, int64(processes*times))
	}
	equal(k, "kinds of failures", len(failures), consumers)
}

func reportWhole(k *kit) {
	unwritable := group("c", "a fingerprint that is far too long for any of the databases, or no text: \xff\x00", "e", 1)
	if err := k.store.Reports.Report(k.ctx, k.db, store.Report{Process: process("a"), Minutes: []store.Minute{{ConsumerType: "c",
		Tally: tallied(1, 0)}}, Failures: []store.FailureGroup{unwritable}}); err == nil {
		return // this database takes it
	}
	equal(k, "minutes", k.minutes(), map[string][]store.Tally{})
	equal(k, "processes", len(k.processes()), 1)
}

// reportKinds has processes report more kinds of failures of a consumer than are kept, all at once, and one of
// another consumer.
func reportKinds(k *kit) {
	const processes, times, each = 4, 4, 50
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			for i := range times {
				r := store.Report{Process: process(fmt.Sprint(p)), Minutes: []store.Minute{{ConsumerType: "c", Tally: tallied(0, each)}}}
				for j := range each {
					r.Failures = append(r.Failures, group("c", fmt.Sprintf("1%d-%d-%d", p, i, j), "e", 1))
				}
				k.report(r)
			}
		})
	}
	wg.Wait()
	k.report(store.Report{
		Process:  process("a"),
		Failures: []store.FailureGroup{group("d", "1a", "e", 1), group("c", "10-0-0", "e", 1), group("c", "1new", "last", 1)},
	})
	found, err := k.store.Reports.Failures(k.ctx, k.db, "c", 1000)
	k.must("failures", err)
	var kinds, runs int64
	for _, f := range found {
		runs += f.Runs
		if f.Fingerprint != "other" {
			kinds++
		} else if f.Sample != "last" || f.ErrorType != "_OTHER" {
			k.Errorf("other failures: got %+v, want the last sample and no error type", f)
		}
	}
	equal(k, "kinds of c", kinds, 500)
	equal(k, "failures of c", runs, processes*times*each+2)
	found, err = k.store.Reports.Failures(k.ctx, k.db, "d", 10)
	k.must("failures", err)
	equal(k, "kinds of d", store.Each(found, func(f store.FailureGroup) string { return f.Fingerprint }), []string{"1a"})
}

func reportCrashes(k *kit) {
	ids := k.add("c", 2)
	k.take("lost", "c", ids...)
	k.pass(lease + time.Second)
	k.recover(3)
	k.vanish(true, store.Suspects)
	k.recover(2)
	found, err := k.store.Reports.Crashes(k.ctx, k.db, ids[1], 10)
	k.must("crashes", err)
	if len(found) != 2 {
		k.Fatalf("got %+v, want two", found)
	}
	equal(k, "apart", found[0].CrashedAt.Sub(found[1].CrashedAt.Time), lease+time.Second)
	for i := range found {
		found[i].CrashedAt.Time = time.Time{}
	}
	equal(
		k, "crashes", found,
		[]store.Crash{{RowID: ids[1], ConsumerType: "c", Owner: "vanishing", Solo: true}, {RowID: ids[1], ConsumerType: "c", Owner: "lost"}},
	)
	all, err := k.store.Reports.Crashes(k.ctx, k.db, 0, 3)
	k.must("crashes", err)
	equal(k, "of all messages, the last three", len(all), 3)
}

func reportPoisoned(k *kit) {
	keyed := k.message("c")
	keyed.OrderKey = "key"
	k.insert(keyed)
	ids := k.add("c", 3)
	c := k.take("a", "c", ids[:2]...)
	k.settle("a", store.Result{Claim: c.ID, Message: ids[0], Outcome: store.Poison, Reason: "r", Fingerprint: "1aaaaaaaaaaaaaaaa"},
		store.Result{Claim: c.ID, Message: ids[1], Outcome: store.Poison, Reason: "r"})
	k.take("lost", "c", ids[2])
	k.pass(lease + time.Second)
	k.recover(3)
	k.vanish(true, store.Suspects)
	k.recover(2)
	found, err := k.store.Poison.List(k.ctx, k.db, store.PoisonFilter{}, 10)
	k.must("poisoned", err)
	prints := make(map[int64]string)
	for _, m := range found {
		prints[m.ID] = m.Fingerprint
	}
	equal(k, "fingerprints", prints, map[int64]string{ids[0]: "1aaaaaaaaaaaaaaaa", ids[1]: "", ids[2]: "crash"})
}

// reportLast: the last failure that poisoned, of each consumer, whatever else failed since.
func reportLast(k *kit) {
	k.report(store.Report{Process: process("a"), Failures: []store.FailureGroup{
		group("c", "1a", "first", 1), group("c", "1b", "last", 1), group("c", "1c", "retried", 1), group("d", "1a", "other", 1),
	}})
	poison := func(consumer, fingerprint string) {
		k.pass(time.Second)
		id := k.add(consumer, 1)[0]
		c := k.take("a", consumer, id)
		k.settle("a", store.Result{Claim: c.ID, Message: id, Outcome: store.Poison, Reason: "r", Fingerprint: fingerprint})
	}
	last := func(want ...string) {
		found, err := k.store.Poison.LastFailures(k.ctx, k.db, []string{"c", "d", "none"})
		k.must("last failures", err)
		var got []string
		for _, f := range found {
			got = append(got, f.ConsumerType+": "+f.Sample)
		}
		equal(k, "last failures", got, want)
	}
	poison("c", "1a")
	last("c: first")
	poison("d", "1a")
	poison("c", "1b")
	last("c: last", "d: other")
	poison("c", "crash")
	poison("d", "")
	last()
}

func reportForgotten(k *kit) {
	k.report(store.Report{
		Process: process("old"), Minutes: []store.Minute{{ConsumerType: "c", Tally: tallied(1, 0)}},
		Failures: []store.FailureGroup{group("c", "1a", "e", 1)},
	})
	for range 24 { // more than a statement deletes
		k.pass(time.Minute)
		k.report(store.Report{Process: process("old"), Minutes: []store.Minute{{ConsumerType: "c", Tally: tallied(1, 0)}}})
	}
	k.pass(31 * 24 * time.Hour)
	k.report(store.Report{
		Process:  process("new"),
		Minutes:  []store.Minute{{ConsumerType: "c", Tally: tallied(2, 0)}, {ConsumerType: "d", Tally: tallied(1, 0)}},
		Failures: []store.FailureGroup{group("c", "1b", "e", 1)},
	})
	for _, want := range []int{3 + 24, 0} {
		n, err := k.store.Reports.ForgetReports(k.ctx, k.db, 10)
		k.must("forget", err)
		equal(k, "forgotten", n, want)
	}
	equal(k, "minutes left", k.minutes("c"), map[string][]store.Tally{"c": {tallied(2, 0)}})
	equal(k, "processes left", k.processes()[0].ID, "new")
}
