package store_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGoldenSQL compares the statements that the store sends, operation by
// operation, with the files in testdata/sql, so that no change of them goes
// unnoticed. After a change that is meant, run it with -update.
func TestGoldenSQL(t *testing.T) {
	t.Parallel()
	testdb.EachEmpty(t, func(t *testing.T, db *bun.DB) {
		g := newGolden(t, db)
		var known []string
		for _, operation := range goldenOperations() {
			g.sent.take()
			if err := operation.run(g); err != nil {
				t.Fatalf("%s: %v", operation.name, err)
			}
			if sent := g.sent.take(); sent != "" { // this database has it
				known = append(known, operation.name+".sql")
				g.compare(operation.name, sent)
			}
		}
		files := testapp.Must[[]string](t)(filepath.Glob(filepath.Join(g.dir, "*")))
		for _, file := range files {
			if !slices.Contains(known, filepath.Base(file)) {
				t.Errorf("%s: got a file, want none: there is no such operation", file)
			}
		}
	})
}

// golden is a database whose rows have fixed ids, and what was sent to it.
type golden struct {
	*testing.T
	*store.Store
	dir  string
	db   *bun.DB
	sent *sentStatements
}

func newGolden(t *testing.T, db *bun.DB) *golden {
	t.Helper()
	s := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{Prefix: "app_"}))
	sent := &sentStatements{}
	name := strings.NewReplacer("pg", "postgres", "mysql", "mariadb").Replace(fmt.Sprint(db.Dialect().Name()))
	return &golden{T: t, Store: s, dir: filepath.Join("testdata", "sql", name), db: db.WithQueryHook(sent), sent: sent}
}

// sentStatements is a hook that remembers what was sent, in lines of its own.
type sentStatements struct {
	mu   sync.Mutex
	text []string
}

func (*sentStatements) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context {
	return ctx
}

func (s *sentStatements) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	if errors.Is(event.Err, sql.ErrTxDone) {
		return // a rollback after the commit sends nothing
	}
	lines := strings.NewReplacer(" VALUES (", "\nVALUES (", "), (", "),\n  (", ") ON CONFLICT", ")\nON CONFLICT", ") RETURNING",
		")\nRETURNING")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, lines.Replace(strings.TrimSuffix(strings.TrimSpace(event.Query), ";"))+";\n")
}

func (s *sentStatements) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.text, "\n")
	s.text = nil
	return text
}

type goldenOperation struct {
	name string
	run  func(g *golden) error
}

// goldenOperations run in this order, each on what the ones before left behind.
func goldenOperations() []goldenOperation {
	const owner = "0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081"
	place := store.Position{At: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC), ID: 1}
	wants := []store.Want{
		{Consumer: "send-receipt", Payload: "order.placed", Limit: 3},
		{Consumer: "update-stock", Payload: "order.placed", Limit: 2, After: place},
	}
	clean := store.ClaimRequest{Owner: owner, Lease: 30 * time.Second, Wants: wants, MaxBytes: 1 << 20}
	suspects, solo := clean, clean
	suspects.Select, suspects.Limit = store.Suspects, 8
	solo.Select, solo.Limit, solo.Solo = store.Killers, 1, true
	claim := func(r store.ClaimRequest) func(*golden) error {
		return func(g *golden) error { _, err := g.Claims.Claim(g.Context(), g.db, r); return err }
	}
	return []goldenOperation{
		{"server", func(g *golden) error { _, err := g.Server(g.Context(), g.db); return err }},
		{"check", func(g *golden) error { _, err := g.Check(g.Context(), g.db); return err }},
		{"migrate", func(g *golden) error { return g.Schema.Migrate(g.Context(), g.db) }},
		{"check_schema", func(g *golden) error { return g.Schema.CheckSchema(g.Context(), g.db) }},
		{"diagnose", (*golden).diagnose},
		{"insert", func(g *golden) error { return g.insert("") }},
		{"insert_keyed", func(g *golden) error { return g.insert("order:1") }},
		{"poll", func(g *golden) error { _, err := g.Claims.Poll(g.Context(), g.db, wants); return err }},
		{"claim", claim(clean)},
		{"claim_suspects", claim(suspects)},
		{"claim_killers", claim(solo)},
		{"extend", func(g *golden) error { _, err := g.Claims.Extend(g.Context(), g.db, owner, 30*time.Second); return err }},
		{"settle", func(g *golden) error { return g.settle(owner) }},
		{"fence", func(g *golden) error {
			f := store.Fence{Owner: owner, Idle: 15 * time.Second, Messages: []store.Fenced{{Claim: 1, ID: 5}}}
			return g.db.RunInTx(g.Context(), nil, func(ctx context.Context, tx bun.Tx) error { _, err := g.Claims.Fence(ctx, tx, f); return err })
		}},
		{"remove", func(g *golden) error { _, err := g.Claims.Remove(g.Context(), g.db, store.Session{}, 5); return err }},
		{"exists", func(g *golden) error { _, err := g.Claims.Exists(g.Context(), g.db, 5); return err }},
		{"finish", func(g *golden) error { _, err := g.Claims.Finish(g.Context(), g.db, owner, []int64{1, 2}); return err }},
		{"disclaim", func(g *golden) error { return g.Claims.Disclaim(g.Context(), g.db, owner, []int64{1, 2}) }},
		{"recover", (*golden).recover},
		{"notify", func(g *golden) error {
			channel, ok := g.Channel()
			if !ok {
				return nil
			}
			return g.Notify(g.Context(), g.db, channel, "sender messages")
		}},
		{"unregistered", func(g *golden) error { _, err := g.Claims.Unhandled(g.Context(), g.db, wants); return err }},
		{"pause", func(g *golden) error {
			return g.Flow.Pause(g.Context(), g.db, []string{"update-stock"}, "ann", "since the deploy")
		}},
		{"resume", func(g *golden) error {
			_, err := g.Flow.Resume(g.Context(), g.db, []string{"update-stock"})
			return err
		}},
		{"list_pending", func(g *golden) error {
			f := store.PendingFilter{Consumer: "send-receipt", State: store.Ready,
				After: store.PendingPlace{Consumer: "send-receipt", At: place.At, ID: 1}}
			_, err := g.Pending.List(g.Context(), g.db, f, 50)
			return err
		}},
		{"examine_pending", func(g *golden) error {
			f := store.PendingFilter{Consumer: "send-receipt", Retrying: true,
				After: store.PendingPlace{Consumer: "send-receipt", At: place.At, ID: 1}}
			_, err := g.Pending.Examine(g.Context(), g.db, f, 2000, 50)
			return err
		}},
		{"claimed_messages", func(g *golden) error { _, err := g.Pending.ClaimedMessages(g.Context(), g.db, 1); return err }},
		{"head_pending", func(g *golden) error { _, _, err := g.Pending.Head(g.Context(), g.db, 3, 1000); return err }},
		{"get_pending", func(g *golden) error { _, _, err := g.Pending.Get(g.Context(), g.db, 3, true); return err }},
		{"cancel", (*golden).cancel},
		{"insert_pending", func(g *golden) error { return g.insert("order:3") }},
		{"settle_poison", (*golden).settlePoison},
		{"poison_groups", (*golden).poisonGroups},
		{"preview_poisoned", func(g *golden) error {
			_, err := g.Poison.Preview(g.Context(), g.db, store.PoisonFilter{Fingerprint: store.Unclassified},
				[][]string{{"update-stock", "stock"}}, 100)
			return err
		}},
		{"kinds_of_poisoned", func(g *golden) error {
			_, err := g.Poison.Kinds(g.Context(), g.db)
			return err
		}},
		{"head_poisoned", func(g *golden) error { _, _, err := g.Poison.Head(g.Context(), g.db, 1, 100); return err }},
		{"requeue", (*golden).requeue},
		{"settle_free", (*golden).settleFree},
		{"insert_group", func(g *golden) error {
			_, err := g.Outbox.Insert(g.Context(), g.db, []store.NewMessage{{ConsumerType: "ship", PayloadType: "p", Payload: "{}", GroupKey: "g"}})
			return err
		}},
		{"group_wait", (*golden).wait},
		{"group_done", func(g *golden) error {
			_, err := g.Groups.DoneAmong(g.Context(), g.db, []string{"g", "h"})
			_, _, behind := g.Groups.DoneBehind(g.Context(), g.db, "a")
			return errors.Join(err, behind)
		}},
		{"group_fire", func(g *golden) error {
			return g.db.RunInTx(g.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
				_, _, err := g.Groups.Fire(ctx, tx, "h")
				return err
			})
		}},
		{"insert_lanes", func(g *golden) error { return g.insertLanes("lane:1") }},
		{"claim_lanes", func(g *golden) error { return g.claimLanes(owner) }},
		{"claim_lanes_stuck", func(g *golden) error {
			stuck := suspects
			stuck.Wants, stuck.Stuck = nil, []store.Lanes{{Source: goldenSource()}}
			return claim(stuck)(g)
		}},
		{"poll_lanes", func(g *golden) error {
			_, err := g.Claims.PollLanes(g.Context(), g.db, []store.LaneLook{{Source: goldenSource(), After: 3}}, true)
			return err
		}},
		{"poll_lanes_blocked", func(g *golden) error {
			_, err := g.Claims.PollLanes(g.Context(), g.db, []store.LaneLook{{Source: goldenSource(), Blocked: true}}, false)
			return err
		}},
		{"settle_lanes", func(g *golden) error { return g.settleLanes("lane:2", owner, g.Claims.Settle) }},
		{"settle_lanes_free", func(g *golden) error { return g.settleLanes("lane:3", owner, g.Claims.SettleFree) }},
		{"receive", func(g *golden) error {
			return g.db.RunInTx(g.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
				_, err := g.Inbox.Receive(ctx, tx, "from-orders", []string{"000102030405060708090a0b0c0d0e0f"})
				return err
			})
		}},
		{"forget_received", func(g *golden) error {
			_, err := g.Inbox.Forget(g.Context(), g.db, "from-orders", time.Hour, 1000)
			return err
		}},
		{"inbox", func(g *golden) error { _, err := g.Inbox.Size(g.Context(), g.db, "from-orders", 10000); return err }},
		{"waiting", func(g *golden) error {
			_, err := g.Inbox.Waiting(g.Context(), g.db, []string{"send-receipt"}, 100001)
			return err
		}},
		{"insert_many", func(g *golden) error {
			_, err := g.Outbox.Insert(g.Context(), g.db, slices.Repeat(goldenRows(""), 2))
			return err
		}},
		{"rename", func(g *golden) error { return g.rename(owner) }},
	}
}

func (g *golden) insert(key string) error {
	_, err := g.Outbox.Insert(g.Context(), g.db, goldenRows(key))
	return err
}

// rename gives another name to a message with an insert id, and to one without.
func (g *golden) rename(owner string) error {
	rows := goldenRows("order:4")[:1]
	rows[0].ConsumerType = "charge-card"
	rows = append(rows, rows[0])
	rows[1].InsertID, rows[1].Headers = "", ""
	if _, err := g.Outbox.Insert(g.Context(), g.db, rows); err != nil {
		return err
	}
	c, err := g.Claims.Claim(g.Context(), g.db, store.ClaimRequest{Owner: owner, Lease: time.Minute, MaxBytes: 1 << 20,
		Wants: []store.Want{{Consumer: "charge-card", Payload: "order.placed", Limit: 2}}})
	if err != nil || len(c.Messages) != 2 {
		return fmt.Errorf("claim: got %d messages, error %v, want two", len(c.Messages), err)
	}
	g.sent.take()
	_, err = g.Claims.Rename(g.Context(), g.db, owner, c.ID,
		[]store.Former{{Message: &c.Messages[0], Name: "to-broker"}, {Message: &c.Messages[1], Name: "to-broker"}})
	return err
}

func goldenSource() store.Source {
	return store.Source{Parks: true, Name: "send-receipt", Names: []string{"send-receipt"}, Payloads: []string{"order.placed"}}
}

func (g *golden) insertLanes(key string) error {
	rows := goldenRows(key)[2:]
	for i := range rows {
		rows[i].OrderKey, rows[i].InsertID, rows[i].Delay = key, fmt.Sprint(key, i), 0
	}
	_, err := g.Outbox.Insert(g.Context(), g.db, rows)
	return err
}

func (g *golden) claimLanes(owner string) error {
	r := store.ClaimRequest{Owner: owner, Lease: time.Minute, Limit: 5, MaxBytes: 1 << 20,
		Lanes: &store.Lanes{Source: goldenSource(), Run: 5}}
	_, err := g.Claims.Claim(g.Context(), g.db, r)
	return err
}

// settleLanes poisons one of two messages of a key.
func (g *golden) settleLanes(key, owner string,
	settle func(context.Context, *bun.DB, string, time.Duration, []store.Result) (store.Settled, error)) error {
	r := store.ClaimRequest{Owner: owner, Lease: time.Minute, Limit: 5, MaxBytes: 1 << 20,
		Lanes: &store.Lanes{Source: goldenSource(), Run: 5}}
	if err := g.insertLanes(key); err != nil {
		return err
	}
	c, err := g.Claims.Claim(g.Context(), g.db, r)
	if err != nil || len(c.Messages) != 2 {
		return fmt.Errorf("claim: got %d messages, error %v, want two", len(c.Messages), err)
	}
	g.sent.take()
	m := c.Messages[0]
	_, err = settle(g.Context(), g.db, owner, time.Minute,
		[]store.Result{{Claim: c.ID, Message: m.ID, Outcome: store.Poison, Lane: m.Lane, Parks: true, Reason: "attempts used up"}})
	return err
}

func goldenRows(key string) []store.NewMessage {
	id := func(n byte) uuid.UUID { return uuid.UUID{0: 1, 6: 0x70, 8: 0x80, 15: n} }
	rows := []store.NewMessage{
		{MessageID: id(1), ConsumerType: "send-receipt", PayloadType: "order.placed", Payload: `{"id":1}`, Headers: `{"tenant":"a"}`},
		{MessageID: id(1), ConsumerType: "update-stock", PayloadType: "order.placed", Payload: `{"id":1}`, Headers: `{"tenant":"a"}`},
		{MessageID: id(2), ConsumerType: "send-receipt", PayloadType: "order.placed", Payload: `{"id":2}`, Delay: 90 * time.Second},
		{MessageID: id(3), ConsumerType: "send-receipt", PayloadType: "order.placed", Payload: `it's`,
			AvailableAt: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)},
	}
	for i := range rows {
		rows[i].InsertID = key
	}
	return rows
}

func (g *golden) settle(owner string) error {
	_, err := g.Claims.Settle(g.Context(), g.db, owner, 30*time.Second, []store.Result{
		{Claim: 1, Message: 1, Outcome: store.Failed, Delay: 10 * time.Second, Errors: `[{"attempt":1,"error":"it's \"bad\""}]`},
		{Claim: 1, Message: 2, Outcome: store.Release},
		{Claim: 1, Message: 4, Outcome: store.Done},
		{Claim: 2, Message: 9, Outcome: store.Poison, Errors: "[]", Reason: "attempts used up"},
	})
	return err
}

// recover lets an owner vanish with a claim of its own first. SQLite sends more
// when there is something to do.
func (g *golden) recover() error {
	if err := g.insert("order:2"); err != nil {
		return err
	}
	r := store.ClaimRequest{Owner: "vanished", Lease: -time.Second, MaxBytes: 1,
		Wants: []store.Want{{Consumer: "update-stock", Payload: "order.placed", Limit: 1}}}
	if c, err := g.Claims.Claim(g.Context(), g.db, r); err != nil || c.ID == 0 {
		return fmt.Errorf("claim of a vanished owner: got claim %d, error %v, want one", c.ID, err)
	}
	g.sent.take()
	_, err := g.Claims.Recover(g.Context(), g.db, 3)
	return err
}

// cancel cancels one message, and one that there is not.
func (g *golden) cancel() error {
	var last int64
	if err := errors.Join(g.insert("order:3"), g.db.NewRaw("SELECT max(id) FROM app_consumer_messages").Scan(g.Context(), &last)); err != nil {
		return err
	}
	g.sent.take()
	_, err := g.Pending.Change(g.Context(), g.db, []int64{last, 99}, store.PendingChange{Cancel: true})
	return err
}

// claimOne inserts messages, claims one, and returns what settles it.
func (g *golden) claimOne(owner string) (store.Result, error) {
	if err := g.insert(owner); err != nil {
		return store.Result{}, err
	}
	r := store.ClaimRequest{Owner: owner, Lease: time.Minute, MaxBytes: 1,
		Wants: []store.Want{{Consumer: "update-stock", Payload: "order.placed", Limit: 1}}}
	c, err := g.Claims.Claim(g.Context(), g.db, r)
	if err != nil || len(c.Messages) != 1 {
		return store.Result{}, fmt.Errorf("claim: got %d messages, error %v, want one", len(c.Messages), err)
	}
	return store.Result{Claim: c.ID, Message: c.Messages[0].ID, Outcome: store.Done}, nil
}

// settleFree settles a message that nobody has locked. On SQLite that is settle.
func (g *golden) settleFree() error {
	if g.db.Dialect().Name() == dialect.SQLite {
		return nil
	}
	held, err := g.claimOne("settler")
	if err != nil {
		return err
	}
	g.sent.take()
	_, err = g.Claims.SettleFree(g.Context(), g.db, "settler", time.Minute, []store.Result{held})
	return err
}

// settlePoison poisons a message, which takes statements of its own on most databases.
func (g *golden) settlePoison() error {
	held, err := g.claimOne("poisoner")
	if err != nil {
		return err
	}
	held.Outcome = store.Poison
	g.sent.take()
	_, err = g.Claims.Settle(g.Context(), g.db, "poisoner", time.Minute, []store.Result{held})
	return err
}

// poisonGroups looks for groups and asks what they are.
func (g *golden) poisonGroups() error {
	groups, _, err := g.Poison.Groups(g.Context(), g.db, "", 500)
	if err != nil || len(groups) != 1 {
		return fmt.Errorf("groups: got %d, error %v, want one", len(groups), err)
	}
	_, failed := g.Poison.FailuresOf(g.Context(), g.db, groups)
	_, last := g.Poison.GroupsLast(g.Context(), g.db, groups)
	_, sizes := g.Poison.GroupSizes(g.Context(), g.db, groups, 10_000)
	_, of := g.Poison.LastFailures(g.Context(), g.db, []string{"c", "d"})
	return errors.Join(failed, last, sizes, of)
}

// requeue requeues a message that was poisoned, under another name of its consumer.
func (g *golden) requeue() error {
	return g.db.RunInTx(g.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		rows, err := g.Poison.Lock(ctx, tx, store.PoisonFilter{}, 10)
		if err != nil || len(rows) == 0 {
			return fmt.Errorf("lock: got %d poisoned messages, error %v, want some", len(rows), err)
		}
		_, err = g.Poison.Requeue(ctx, tx, rows, store.Requeuing{Renamed: map[string]string{rows[0].ConsumerType: "renamed"}})
		return err
	})
}

// diagnose looks at all parts of the live database.
func (g *golden) diagnose() error {
	var errs []error
	for _, part := range []store.Vital{store.Weaknesses, store.Connections, store.Indexes, store.DeadRows, store.Holders} {
		_, err := g.Schema.Diagnose(g.Context(), g.db, part)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// compare compares what was sent with a golden file, or writes it.
func (g *golden) compare(name, got string) {
	g.Helper()
	file := filepath.Join(g.dir, name+".sql")
	if *update {
		testapp.OK(g, os.MkdirAll(g.dir, 0o755))
		testapp.OK(g, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		g.Errorf("%s: %v; write it with: go test -run TestGoldenSQL ./store -update", name, err)
		return
	}
	if diff := lineDiff(string(want), got); diff != "" {
		g.Errorf("%s: the statements differ from the file, want - and got +:\n%s\nIf that is meant, run: go test -run TestGoldenSQL ./store -update", file, diff)
	}
}

// lineDiff lists the lines that only one of two texts has, with their neighbours.
func lineDiff(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	// common[i][j] is the length of the longest common part of a[i:] and b[j:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var lines []string
	changed := make(map[int]bool) // lines near a change
	mark := func(line string) {
		lines = append(lines, line)
		if line[0] == ' ' {
			return
		}
		for near := len(lines) - 3; near <= len(lines)+1; near++ {
			changed[near] = true
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			mark("  " + a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			mark("- " + a[i])
			i++
		default:
			mark("+ " + b[j])
			j++
		}
	}
	var out []string
	for n, line := range lines {
		if changed[n] {
			out = append(out, line)
		} else if len(out) > 0 && out[len(out)-1] != "  ..." {
			out = append(out, "  ...")
		}
	}
	if len(changed) == 0 {
		return ""
	}
	return strings.Join(out, "\n")
}

func TestGoldenDiffShowsWhatChanged(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, want, got, diff string }{
		{"nothing", "a\nb\nc", "a\nb\nc", ""},
		{"a changed line", "1\n2\n3\n4\n5\n6\n7", "1\n2\n3\nx\n5\n6\n7", "  2\n  3\n- 4\n+ x\n  5\n  6\n  ..."},
		{"a new line at the end", "a", "a\nb", "  a\n+ b"},
		{"a line gone from the start", "a\nb\nc\nd", "b\nc\nd", "- a\n  b\n  c\n  ..."},
		{"everything", "a", "b", "- a\n+ b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := lineDiff(test.want, test.got); diff != test.diff {
				t.Errorf("diff:\n got %q\nwant %q", diff, test.diff)
			}
		})
	}
}

// wait stores a group.
func (g *golden) wait() error {
	return g.db.RunInTx(g.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		messages := []store.NewMessage{{ConsumerType: "ship", PayloadType: "p", Payload: "{}"}}
		_, err := g.Groups.Wait(ctx, tx, store.MessageGroup{Name: "h", Messages: messages})
		return err
	})
}
