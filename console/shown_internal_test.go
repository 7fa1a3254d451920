package console

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// Internal: what pages make of what the service tells, without a database.

// TestSince: a failure is a deploy's only if it came soon after one that has its consumer.
func TestSince(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	takes := []admin.ProcessConsumer{{Name: "mail", PayloadTypes: []string{"sent"}}}
	fleet := []admin.Process{{Version: "v2", StartedAt: at, Consumers: takes},
		{Version: "v2", StartedAt: at.Add(time.Hour), Consumers: takes}, {Version: "v3", StartedAt: at}}
	for _, c := range []struct {
		version string
		first   time.Time
		want    string
	}{
		{"v2", at.Add(40 * time.Second), "40 s after v2 started"}, {"v2", at.Add(3 * time.Hour), "first seen in v2"}, {"v2",
			at.Add(-time.Second), "first seen in v2"},
		{"v3", at.Add(time.Second), "first seen in v3"}, {"v1", at, "first seen in v1"}, {"", at, ""},
	} {
		if got := since(admin.FailureGroup{Consumer: "mail", FirstVersion: c.version, FirstAt: c.first}, fleet); got != c.want {
			t.Errorf("first seen in %q at %s: got %q, want %q", c.version, c.first, got, c.want)
		}
	}
}

// TestFindingsLeadSomewhere: what could not be looked at is of no consumer, whose page would not be there.
func TestFindingsLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, check := range []string{"poisoned", "blocked_keys", "consumers", "pauses", "schedules", "processes", "projections",
		"operations", "clock"} {
		for _, subject := range []string{"", "mail"} {
			page := finding{ops.Finding{Check: check, Subject: subject}}.Page()
			path, query, _ := strings.Cut(page, "?")
			if _, known := byPath(routes())[path]; !known || path == "consumer" && query != "name=mail" {
				t.Errorf("%q of %q leads to %q", check, subject, page)
			}
		}
	}
}

// TestAdviceHasNoCommands: pages have a link in the place of a sentence with a command.
func TestAdviceHasNoCommands(t *testing.T) {
	t.Parallel()
	operator, viewer := view{session: sessionOf(t, ops.Operator)}, view{session: sessionOf(t, ops.Viewer)}
	for _, test := range []struct {
		check, remedy, advice string
		of                    view
		pages                 []string
	}{
		{"processes", "Look why it ended. List such: asyncmonolith messages list --crashed.", "Look why it ended.", viewer, []string{"suspects"}},
		{"circuit_breakers", "Mend it. To try one message now: asyncmonolith consumers probe mail.", "Mend it.", operator,
			[]string{"confirm?consumer=mail&do=probe"}},
		{"circuit_breakers", "Mend it. To try one message now: asyncmonolith consumers probe mail.", "Mend it.", viewer, nil},
		{"circuit_breakers", "Mend it.", "Mend it.", operator, nil},
		{"pauses", "Resume it; or cancel them.", "Resume it; or cancel them.", operator, []string{"confirm?consumer=mail&do=resume"}},
		{"schema", "Run: asyncmonolith migrate.", "", operator, nil},
		{"clock", "", "", operator, nil},
	} {
		f := finding{ops.Finding{Check: test.check, Subject: "mail", Remedy: test.remedy}}
		var pages []string
		for _, r := range f.Remedies(test.of) {
			pages = append(pages, r.Page)
		}
		if got := f.Advice(); got != test.advice || !slices.Equal(pages, test.pages) {
			t.Errorf("%s, %q: got %q and %q, want %q and %q", test.check, test.remedy, got, pages, test.advice, test.pages)
		}
	}
}

// TestConsumersAreSortedByTrouble: what stops messages comes before what has failed, and that before what waits.
func TestConsumersAreSortedByTrouble(t *testing.T) {
	t.Parallel()
	stopped := func(state admin.State) admin.Queue { return admin.Queue{Stops: []admin.Explanation{{Reason: state}}} }
	last := -1
	for _, row := range []consumerRow{
		{Queue: stopped(admin.CircuitOpen)}, {Queue: admin.Queue{Poisoned: 1}}, {Queue: stopped(admin.Paused)},
		{recent: recent{Spark: chart{Bad: 1}}},
		{Queue: stopped(admin.RateLimited)}, {Queue: admin.Queue{Ready: 9}},
	} {
		if got := row.rank(); got <= last {
			t.Errorf("%+v: got rank %d, want more than %d", row, got, last)
		} else {
			last = got
		}
	}
	for _, state := range []admin.State{admin.CircuitBreakerOpen, admin.NoLiveProcess, admin.KeyBlocked, admin.OtherPayload} {
		if got := (consumerRow{Queue: stopped(state)}).rank(); got != 0 {
			t.Errorf("%s: got rank %d, want 0", state, got)
		}
	}
}

// TestTimes: a time has its date only where that is not today, and an age in one unit.
func TestTimes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 2, 0, 10, 0, 0, time.UTC)
	for at, want := range map[time.Time]string{
		now.Add(-5 * time.Minute): "00:05:00 · 5 min ago", now.Add(-30 * time.Minute): "May 1, 23:40:00 · 30 min ago",
		now: "00:10:00 · just now", now.Add(-400 * 24 * time.Hour): "2025-03-28 00:10:00 · 400 d ago",
		now.Add(90 * time.Minute): "01:40:00 · in 1 h", now.Add(30 * time.Second): "00:10:30 · in less than 1 min",
	} {
		if got := whenAt(now, at) + " · " + roughlyAt(now, at); got != want {
			t.Errorf("%s: got %q, want %q", at, got, want)
		}
	}
}

// TestJSONTrees: a payload is a tree with its keys in their order, unless it is no JSON, or too much for one.
func TestJSONTrees(t *testing.T) {
	t.Parallel()
	tree := jsonTree([]byte(`{"b": 1.50, "a": ["<x>", null, {}], "b": true}`))
	if tree == nil || !tree.Open || len(tree.Children) != 3 || tree.Children[0].Key != `"b"` || tree.Children[0].Value != "1.50" {
		t.Fatalf("got %+v", tree)
	}
	if list := tree.Children[1]; list.Size() != "3 items" || list.Children[0].Value != `"<x>"` || list.Children[1].Value != "null" ||
		list.Children[2].Kind != "object" || !list.Open {
		t.Errorf("got %+v", list)
	}
	large := jsonTree([]byte("[[" + strings.Repeat("1,", 100) + "1]]"))
	if large == nil || !large.Open || large.Children[0].Open {
		t.Errorf("a large one: got %+v, want it closed but for the first level", large)
	}
	for _, text := range []string{"", "text", "1", `"text"`, `{"a": 1`, `{"a": 1} 2`, strings.Repeat("[", 100) + strings.Repeat("]", 100),
		"[" + strings.Repeat("1,", mostNodes) + "1]"} {
		if got := jsonTree([]byte(text)); got != nil {
			t.Errorf("%.20q: got %+v, want none", text, got)
		}
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	c := columns(first, span{slot: time.Minute, slots: 3, width: 4}, 100, []operator.MinuteStats{
		{At: first.Add(-time.Minute), Done: 1000}, {At: first, Done: 50}, {At: first.Add(time.Minute), Done: 80, Retried: 15,
			Poisoned: 5}, {At: first.Add(3 * time.Minute), Done: 1000},
	})
	if c.Total != 150 || c.Bad != 20 || c.Most != 100 || len(c.Columns) != 3 {
		t.Fatalf("got %d runs, %d failed, %d at most, %d columns, want 150, 20, 100, 3", c.Total, c.Bad, c.Most, len(c.Columns))
	}
	if got := c.Columns[0]; got.GoodHigh != 50 || got.GoodY != 50 || got.BadHigh != 0 {
		t.Errorf("half of the most: got %+v", got)
	}
	if got := c.Columns[1]; got.BadHigh != 20 || got.BadY != 0 || got.GoodHigh != 80 || got.GoodY != 20 {
		t.Errorf("what failed stands above what was done: got %+v", got)
	}
	if high(1, 1_000_000, 100) != 1 || high(0, 10, 100) != 0 {
		t.Error("what is there is seen, and what is not there is not")
	}
}

func TestTraces(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": "0af7651916cd43dd8448eb211c80319c",
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01": "", "00-javascript:alert(1)//aaaaaaaaaaa-b7-01": "", "": "", "a-b": "",
	} {
		if got := traceOf(map[string]string{"traceparent": header}); got != want {
			t.Errorf("%q: got %q, want %q", header, got, want)
		}
	}
}

// TestFires: where the clock of a zone changes between two fires, the second one says so.
func TestFires(t *testing.T) {
	t.Parallel()
	winter, summer := time.FixedZone("CET", 3600), time.FixedZone("CEST", 7200)
	at := time.Date(2026, 3, 28, 2, 30, 0, 0, winter)
	fires := firesOf([]time.Time{at, at.Add(24 * time.Hour).In(summer), at.Add(48 * time.Hour).In(summer)})
	if fires[0].Shift != "" || fires[1].Shift != "+01:00 → +02:00" || fires[2].Shift != "" {
		t.Errorf("got %+v", fires)
	}
}

func TestJSONTrouble(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{\n\"a\": 1x}": "invalid JSON in line 2 (invalid character 'x' after object key:value pair).",
		"{}":            "the JSON does not fit the payload type.",
	} {
		if got := jsonTrouble(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestLimits: however many names there are, what is remembered is bounded, and time gives back.
func TestLimits(t *testing.T) {
	t.Parallel()
	var l limits
	for range changesAtOnce {
		if wait := l.change("ada"); wait != 0 {
			t.Fatalf("the first changes wait for %s", wait)
		}
	}
	if l.change("ada") <= 0 {
		t.Error("one change too many was let pass")
	}
	if l.change("grace") != 0 {
		t.Error("somebody else has to wait")
	}
	l.changes["ada"] = bucket{left: 0, at: time.Now().Add(-time.Second)}
	if l.change("ada") != 0 {
		t.Error("after a second there is one change")
	}
	for i := range 2 * mostKnown {
		l.request(time.Duration(i).String())
	}
	if n := len(l.requests); n > mostKnown {
		t.Errorf("%d names are remembered, at most %d are wanted", n, mostKnown)
	}
}

// TestAlive: a program with several runs is one, and what has stopped or vanished is none.
func TestAlive(t *testing.T) {
	t.Parallel()
	run := func(host string, pid int, status admin.ProcessStatus) admin.Process {
		return admin.Process{Host: host, PID: pid, Status: status}
	}
	fleet := []admin.Process{
		run("a", 1, admin.ProcessAlive), run("a", 1, admin.ProcessAlive), run("b", 1, admin.ProcessAlive), run("b", 1, admin.ProcessAlive),
		run("b", 2, admin.ProcessLost), run("c", 1, admin.ProcessStopped),
	}
	for n, want := range map[int]int{0: 0, 1: 1, 2: 1, 6: 2} {
		var p processesPage
		p.set(fleet[:n], nil)
		if p.Alive != want {
			t.Errorf("of %d: got %d, want %d", n, p.Alive, want)
		}
	}
}

// TestClaimsNameTheirProcess: processes are shown in another order than they are read in.
func TestClaimsNameTheirProcess(t *testing.T) {
	t.Parallel()
	fleet := []admin.Process{
		{ID: "b", PID: 2, Status: admin.ProcessAlive}, {ID: "a", PID: 1, Status: admin.ProcessAlive}, {ID: "c", PID: 3,
			Status: admin.ProcessLost},
	}
	var p processesPage
	p.set(fleet, []admin.Claim{{ID: 1, Owner: "a"}, {ID: 2, Owner: "b"}, {ID: 3, Owner: "c"}, {ID: 4, Owner: "d"}})
	for _, c := range p.Claims {
		if c.Owner == nil && c.Claim.Owner != "d" || c.Owner != nil && c.Owner.ID != c.Claim.Owner {
			t.Errorf("claim %d of %q is shown as that of %+v", c.ID, c.Claim.Owner, c.Owner)
		}
	}
	if first := p.Programs[0].Parts[0].ID; first != "c" {
		t.Errorf("the first process is %q, want the lost one", first)
	}
}

// TestManyAreNotAll: an operation of the first matches does not say that these are all.
func TestManyAreNotAll(t *testing.T) {
	t.Parallel()
	of := func(p ops.Preview) operation {
		return operation{ops.Operation{State: ops.Running, Changed: 10_000, Rate: 100, Target: ops.Target{Pending: &admin.Filter{}}, Preview: &p}}
	}
	for _, test := range []struct {
		preview  ops.Preview
		size     string
		progress int64
	}{
		{ops.Preview{Messages: 10_000}, "10,000 messages", 1000},
		{ops.Preview{Messages: 10_000, More: true, First: true}, "the first 10,000 messages", 1000},
		{ops.Preview{Messages: 20_000}, "20,000 messages", 500},
	} {
		if o := of(test.preview); o.Size() != test.size || o.Progress() != test.progress {
			t.Errorf("%+v: got %q and %d, want %q and %d", test.preview, o.Size(), o.Progress(), test.size, test.progress)
		}
	}
}

// TestClosable: what was begun can be stopped once its process must have died.
func TestClosable(t *testing.T) {
	t.Parallel()
	for ago, want := range map[time.Duration]bool{time.Minute: false, time.Hour: true} {
		if o := (operation{ops.Operation{State: ops.Started, CreatedAt: time.Now().Add(-ago)}}); o.Closable() != want {
			t.Errorf("begun %s ago: got %v, want %v", ago, o.Closable(), want)
		}
	}
}
