package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// mariaStore is a store with its tables, on a new database.
func mariaStore(t *testing.T, db *bun.DB) *store.Store {
	t.Helper()
	s := testapp.Must[*store.Store](t)(store.For(dialect.MySQL, bus.Tables{}))
	testapp.OK(t, s.Schema.Migrate(t.Context(), db))
	return s
}

// fill inserts messages of twenty consumers, without the library's help.
func fill(t *testing.T, db *bun.DB, n int) {
	t.Helper()
	_, err := db.NewRaw(fmt.Sprintf(`INSERT INTO consumer_messages (message_id, consumer_type, payload_type, payload, created_at, available_after, crashes)
		SELECT UUID(), CONCAT('c', seq %% 20), 'p', '{}', 0, seq, CASE WHEN seq %% 1000 = 0 THEN 1 ELSE 0 END FROM seq_1_to_%d`, n)).Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	testapp.OK(t, testapp.Second(db.NewRaw("ANALYZE TABLE consumer_messages").Exec(t.Context())))
}

// TestMariaDBRefusesWhatItCannotTrust has sessions with settings that users may
// have.
func TestMariaDBRefusesWhatItCannotTrust(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string]string{
		"NO_BACKSLASH_ESCAPES": "sql_mode='STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES'",
		"STRICT_TRANS_TABLES":  "sql_mode=''",
		"character_set_client": "charset=latin1",
		"EMPTY_STRING_IS_NULL": "sql_mode='STRICT_TRANS_TABLES,EMPTY_STRING_IS_NULL'",
		"connection":           "collation_connection=latin1_bin",
		"results":              "character_set_results=latin1",
		"completion_type":      "completion_type=1",
		"sql_safe_updates":     "sql_safe_updates=1",
		"foreign_key_checks":   "foreign_key_checks=0",
		"autocommit":           "autocommit=0",
		"sql_select_limit 1:":  "sql_select_limit=1",
		"sql_select_limit 5:":  "sql_select_limit=5",
		"sql_select_limit 20:": "sql_select_limit=20",
		"sql_select_limit":     "sql_select_limit=0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.OpenMariaDB(t, testdb.MariaDBDSN(t, setting))
			s := testapp.Must[*store.Store](t)(store.For(dialect.MySQL, bus.Tables{}))
			if _, err := s.Check(t.Context(), db); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("check with %s: got error %v, want one that names %s", setting, err, name)
			}
		})
	}
}

// TestMariaDBNeedsADatabase: a DSN that names none is told from one whose lock is taken.
func TestMariaDBNeedsADatabase(t *testing.T) {
	t.Parallel()
	config := testapp.Must[*mysql.Config](t)(mysql.ParseDSN(testdb.MariaDBDSN(t)))
	config.DBName = ""
	db := testdb.OpenMariaDB(t, config.FormatDSN())
	err := outbox.Migrate(t.Context(), db, bus.Tables{})
	if err == nil || !strings.Contains(err.Error(), "no database is selected") {
		t.Errorf("migrate without a database: got error %v, want one that says so", err)
	}
	if err := testapp.Must[*store.Store](t)(store.For(dialect.MySQL, bus.Tables{})).Schema.CheckSchema(t.Context(), db); err == nil ||
		!strings.Contains(err.Error(), "no database is selected") {
		t.Errorf("look at the tables without a database: got error %v, want one that says so", err)
	}
}

// TestMariaDBStatementsFitIntoPackets: the server closes the connection under a
// statement that is too large, which looks like an outage.
func TestMariaDBStatementsFitIntoPackets(t *testing.T) {
	t.Parallel()
	db := testdb.MariaDB(t)
	s := mariaStore(t, db)
	fill(t, db, 4000)
	var list string
	for i := range 10 {
		list = errorlog.Append(list, errorlog.Attempt{Attempt: i, Error: strings.Repeat("goroutine 1:\n\t\"x\"", 500)})
	}
	for _, outcome := range []store.Outcome{store.Failed, store.Poison} {
		c := testapp.Must[store.Claim](t)(s.Claims.Claim(t.Context(), db,
			store.ClaimRequest{Owner: "a", Lease: time.Minute, Wants: []store.Want{{Consumer: "c1", Payload: "p", Limit: 100}}, MaxBytes: 16 << 20}))
		var results []store.Result
		for _, m := range c.Messages {
			results = append(results, store.Result{Claim: c.ID, Message: m.ID, Outcome: outcome, Errors: list, Delay: time.Hour})
		}
		if settled, err := s.Claims.Settle(t.Context(), db, "a", time.Minute, results); err != nil || settled.Applied != 100 {
			t.Errorf("settle of long errors, %s: got %d applied, error %v, want 100", outcome, settled.Applied, err)
		}
	}
	rows := make([]store.NewMessage, 1000)
	for i := range rows {
		rows[i] = store.NewMessage{ConsumerType: "c", PayloadType: "p", Payload: "{}",
			Headers: `{"h":"` + strings.Repeat(`\"`, limits.Headers) + `"}`}
		rows[i].MessageID[0], rows[i].MessageID[1] = byte(i), byte(i>>8)
	}
	if _, err := s.Outbox.Insert(t.Context(), db, rows); err != nil {
		t.Errorf("insert of large headers: got error %v, want none", err)
	}
}

// TestMariaDBClaimersDoNotStarveEachOther: two that claim at the same moment find
// the same messages, and the one that comes second looks behind them.
func TestMariaDBClaimersDoNotStarveEachOther(t *testing.T) {
	t.Parallel()
	db := testdb.MariaDB(t)
	s := mariaStore(t, db)
	fill(t, db, 10_000)
	wants := []store.Want{{Consumer: "c1", Payload: "p", Limit: 50}, {Consumer: "c2", Payload: "p", Limit: 50}}
	held := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil)) // stands for a claimer that has not committed
	defer held.Rollback()                                         //nolint:errcheck // nothing is written
	testapp.OK(t, testapp.Second(held.NewRaw("SELECT id FROM consumer_messages WHERE id <= 1000 FOR UPDATE").Exec(t.Context())))
	c, err := s.Claims.Claim(t.Context(), db, store.ClaimRequest{Owner: "a", Lease: time.Minute, Wants: wants, MaxBytes: 1 << 20})
	if err != nil || len(c.Messages) != 100 {
		t.Fatalf("claim beside another: got %d messages, error %v, want 100", len(c.Messages), err)
	}
	for _, m := range c.Messages {
		if m.ID <= 1000 {
			t.Errorf("claim beside another: got message %d, want none that is locked", m.ID)
		}
	}
}

// TestMariaDBWithGapsBetweenIDs: a server that replicates both ways leaves them, and what
// was inserted is found by the first id that it was given.
func TestMariaDBWithGapsBetweenIDs(t *testing.T) {
	t.Parallel()
	db := testdb.OpenMariaDB(t, testdb.MariaDBDSN(t, "auto_increment_increment=7", "auto_increment_offset=3"))
	s := mariaStore(t, db)
	produce := func(first, n, want int) {
		t.Helper()
		rows := make([]store.NewMessage, n)
		for i := range rows {
			rows[i] = store.NewMessage{ConsumerType: "c", PayloadType: "p", Payload: "{}", InsertID: fmt.Sprint(first + i)}
			rows[i].MessageID[0], rows[i].MessageID[1] = byte(first), byte(i)
		}
		if written := testapp.Must[map[uuid.UUID]int](t)(s.Outbox.Insert(t.Context(), db, rows)); len(written) != want {
			t.Errorf("insert of %d: got %d written, want %d", n, len(written), want)
		}
	}
	claim := func(want int) (c store.Claim) {
		t.Helper()
		c = testapp.Must[store.Claim](t)(s.Claims.Claim(t.Context(), db,
			store.ClaimRequest{Owner: "a", Lease: time.Minute, MaxBytes: 1 << 20, Wants: []store.Want{{Consumer: "c", Payload: "p", Limit: 100}}}))
		if len(c.Messages) != want {
			t.Fatalf("claim: got %d, want %d", len(c.Messages), want)
		}
		return c
	}
	produce(1, 10, 10)
	produce(6, 10, 5)
	c := claim(15)
	results := make([]store.Result, len(c.Messages))
	for i, m := range c.Messages {
		results[i] = store.Result{Claim: c.ID, Message: m.ID, Outcome: store.Poison, Reason: "r"}
	}
	if settled := testapp.Must[store.Settled](t)(s.Claims.Settle(t.Context(), db, "a", time.Minute, results)); settled.Applied != 15 {
		t.Fatalf("settle: got %d applied, want 15", settled.Applied)
	}
	produce(1, 5, 5)
	err := txn.InTx(t.Context(), db, func(tx bun.Tx) error {
		rows, err := s.Poison.Lock(t.Context(), tx, store.PoisonFilter{}, 100)
		if err != nil {
			return err
		}
		requeued, err := s.Poison.Requeue(t.Context(), tx, rows, store.Requeuing{})
		if len(requeued) != 10 {
			t.Errorf("requeue beside 5 of 15 insert ids: got %d requeued, want 10", len(requeued))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	claim(15)
}

// TestMariaDBLooksBehindWhatIsHeld: what is held is left out here and not by the
// server, so a look can find nothing else.
func TestMariaDBLooksBehindWhatIsHeld(t *testing.T) {
	t.Parallel()
	const each = 300
	db := testdb.MariaDB(t)
	s, wants := backlogOfTwenty(t, db, 20*each)
	request := store.ClaimRequest{Owner: "others", Lease: time.Minute, Wants: slices.Clone(wants[:10]), MaxBytes: 1 << 20}
	claim := func(n int) {
		t.Helper()
		for i := range request.Wants {
			request.Wants[i].Limit = n
		}
		if c, err := s.Claims.Claim(t.Context(), db, request); err != nil || len(c.Messages) != n*len(request.Wants) {
			t.Fatalf("claim of %d each: got %d messages, error %v", n, len(c.Messages), err)
		}
	}
	due := func(want int) {
		t.Helper()
		if p, err := s.Claims.Poll(t.Context(), db, wants); err != nil || len(p.Due) != want {
			t.Errorf("poll: got %d consumers with something due, error %v, want %d", len(p.Due), err, want)
		}
	}
	claim(each - 60)
	due(20)
	request.Owner = "a"
	claim(1) // less than minLook
	claim(59)
	due(10)
}

// TestMariaDBLooksBehindHoweverMuchIsHeld: by others, of what one consumer takes.
func TestMariaDBLooksBehindHoweverMuchIsHeld(t *testing.T) {
	t.Parallel()
	db := testdb.MariaDB(t)
	a := testapp.New(t, db, testapp.Consumed("c"))
	a.Fill(80_000, "order.placed")
	a.Exec(`INSERT INTO message_claims (owner, claimed_at, leased_until, solo, message_ids)
		SELECT 'others', 0, ?, FALSE, JSON_ARRAYAGG(id) FROM consumer_messages`, time.Now().Add(time.Hour).UnixMicro())
	a.Produce(order{ID: "behind"})
	s, wants := storeOf(t, db), []store.Want{{Consumer: "c", Payload: "order.placed", Limit: 10}}
	if p, err := s.Claims.Poll(t.Context(), db, wants); err != nil || len(p.Due) != 1 {
		t.Errorf("poll: got %d consumers with something due, error %v, want 1", len(p.Due), err)
	}
	c, err := s.Claims.Claim(t.Context(), db, store.ClaimRequest{Owner: "a", Lease: time.Minute, Wants: wants, MaxBytes: 1 << 20})
	if err != nil || len(c.Messages) != 1 {
		t.Errorf("claim: got %d messages, error %v, want 1", len(c.Messages), err)
	}
}

// TestMariaDBRenewalsWrite: also when there is nothing to renew, since one that passes
// ends an outage, and a server that is read-only answers whoever only reads.
func TestMariaDBRenewalsWrite(t *testing.T) {
	t.Parallel()
	db := testdb.MariaDB(t)
	s := mariaStore(t, db)
	tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true}))
	defer tx.Rollback() //nolint:errcheck // nothing is written
	if _, err := s.Claims.Extend(t.Context(), tx, "nobody", time.Minute); dberr.ClassOf(err) != dberr.ReadOnly {
		t.Errorf("renewal of nothing, read-only: got error %v, want one that says so", err)
	}
}

// TestMariaDBFenceAsksForTheClaimLast: a claim that is given back before the fence has
// the message's row does not hold it any more.
func TestMariaDBFenceAsksForTheClaimLast(t *testing.T) {
	t.Parallel()
	db := testdb.MariaDB(t)
	s := mariaStore(t, db)
	fill(t, db, 20)
	c, err := s.Claims.Claim(t.Context(), db,
		store.ClaimRequest{Owner: "a", Lease: time.Minute, Wants: []store.Want{{Consumer: "c1", Payload: "p", Limit: 1}}, MaxBytes: 1 << 20})
	if err != nil || len(c.Messages) != 1 {
		t.Fatalf("claim: got %d messages, error %v, want 1", len(c.Messages), err)
	}
	given := 0
	hooked := db.WithQueryHook(testapp.QueryHook(func(ctx context.Context, query string) {
		if strings.Contains(query, "FOR UPDATE") && given == 0 {
			given++
			if err := s.Claims.Disclaim(ctx, db, "a", []int64{c.ID}); err != nil {
				t.Error(err)
			}
		}
	}))
	tx := testapp.Must[bun.Tx](t)(hooked.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))
	defer tx.Rollback() //nolint:errcheck // nothing is written
	held, err := s.Claims.Fence(t.Context(), tx, store.Fence{Owner: "a", Messages: []store.Fenced{{ID: c.Messages[0].ID, Claim: c.ID}}})
	if err != nil || given != 1 || len(held) > 0 {
		t.Errorf("fence: got %v, error %v, after the claim was given back %d times, want none after 1", held, err, given)
	}
}

// TestMariaDBSurfacesNoConflicts has producers with keys in common, claimers,
// settlers and recoveries meet: deadlocks and lock waits are for the library.
func TestMariaDBSurfacesNoConflicts(t *testing.T) {
	t.Parallel()
	db := testdb.MariaDB(t)
	s := mariaStore(t, db)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Second)
	defer cancel()
	var mu sync.Mutex
	holders := make(map[int64]string) // of live claims: nobody's lease runs out
	var all sync.WaitGroup
	work := func(what string, step func(i int) error) {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := step(i); err != nil && ctx.Err() == nil {
					t.Errorf("%s: got error %v, want none", what, err)
					return
				}
			}
		})
	}
	for worker := range 8 {
		work("produce", func(i int) error {
			rows := make([]store.NewMessage, 20)
			for n := range rows {
				rows[n] = store.NewMessage{ConsumerType: "c", PayloadType: "p", Payload: "{}", InsertID: fmt.Sprint((worker*7 + i*3 + n*11) % 60)}
				rows[n].MessageID[0], rows[n].MessageID[1], rows[n].MessageID[2], rows[n].MessageID[3] = byte(worker), byte(i), byte(i>>8), byte(n)
			}
			_, err := s.Outbox.Insert(ctx, db, rows)
			return err
		})
	}
	for worker := range 4 {
		owner := fmt.Sprint("owner-", worker)
		work("claim and settle", func(i int) error {
			c, err := s.Claims.Claim(ctx, db, store.ClaimRequest{Owner: owner, Lease: time.Minute,
				Wants: []store.Want{{Consumer: "c", Payload: "p", Limit: 10}}, MaxBytes: 1 << 20})
			if err != nil || c.ID == 0 {
				return err
			}
			mu.Lock()
			for _, m := range c.Messages {
				if other, taken := holders[m.ID]; taken {
					t.Errorf("message %d: claimed by %s and by %s", m.ID, other, owner)
				}
				holders[m.ID] = owner
			}
			mu.Unlock()
			var results []store.Result
			mu.Lock()
			for n, m := range c.Messages {
				delete(holders, m.ID) // before it is settled: after that others may have it
				results = append(results, store.Result{Claim: c.ID, Message: m.ID,
					Outcome: []store.Outcome{store.Done, store.Failed, store.Snoozed, store.Release}[(i+n)%4]})
			}
			mu.Unlock()
			if _, err := s.Claims.Extend(ctx, db, owner, time.Minute); err != nil {
				return err
			}
			settled, err := s.Claims.Settle(ctx, db, owner, time.Minute, results)
			if err == nil && settled.Applied != len(results) {
				t.Errorf("settle: got %d applied, want %d", settled.Applied, len(results))
			}
			return err
		})
	}
	work("recover", func(int) error { _, err := s.Claims.Recover(ctx, db, 3); return err })
	all.Wait()
}

// TestMariaDBPlans: on a large table no statement of the hot path reads all of it,
// or sorts it.
func TestMariaDBPlans(t *testing.T) {
	t.Parallel()
	db := testdb.MariaDB(t)
	s := mariaStore(t, db)
	fill(t, db, 200_000)
	var sent []string
	hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) { sent = append(sent, query) }))
	ctx := t.Context()
	var wants []store.Want
	for i := range 20 {
		wants = append(wants, store.Want{Consumer: fmt.Sprint("c", i), Payload: "p", Limit: 25})
	}
	request := store.ClaimRequest{Owner: "a", Lease: time.Minute, Wants: wants, MaxBytes: 1 << 20}
	var claims []store.Claim
	for range 8 {
		claims = append(claims, testapp.Must[store.Claim](t)(s.Claims.Claim(ctx, hooked, request)))
	}
	request.Select, request.Limit = store.Suspects, 8
	_, crashed := s.Claims.Claim(ctx, hooked, request)
	_, polled := s.Claims.Poll(ctx, hooked, wants)
	var results []store.Result
	for n, m := range claims[0].Messages {
		results = append(results, store.Result{Claim: claims[0].ID, Message: m.ID,
			Outcome: []store.Outcome{store.Done, store.Failed, store.Poison}[n%3], Reason: "r"})
	}
	_, settled := s.Claims.Settle(ctx, hooked, "a", time.Minute, results[:len(results)-1])
	_, free := s.Claims.SettleFree(ctx, hooked, "a", time.Minute,
		[]store.Result{{Claim: claims[2].ID, Message: claims[2].Messages[0].ID, Outcome: store.Done}})
	_, finished := s.Claims.Finish(ctx, hooked, "a", []int64{claims[1].ID})
	_, extended := s.Claims.Extend(ctx, hooked, "a", -time.Minute)
	_, recovered := s.Claims.Recover(ctx, hooked, 3)
	_, unregistered := s.Claims.Unhandled(ctx, hooked, wants)
	testapp.OK(t, errors.Join(crashed, polled, settled, free, finished, extended, recovered, unregistered))
	explained := 0
	for _, query := range sent {
		if prefix, rest, ok := strings.Cut(query, " FOR */ "); ok && strings.HasPrefix(prefix, "/*M! SET STATEMENT") {
			query = rest // which has no plan of its own
		}
		verb, _, _ := strings.Cut(strings.TrimLeft(query, "( \n"), " ")
		if !strings.Contains(query, "consumer_messages") || !slices.Contains([]string{"SELECT", "UPDATE", "DELETE", "INSERT", "WITH"}, verb) {
			continue
		}
		explained++
		for _, step := range explainMariaDB(t, db, query) {
			if strings.HasPrefix(step, "SCAN m ") || strings.HasPrefix(step, "SCAN consumer_messages") ||
				strings.HasPrefix(step, "SEARCH m ") && strings.Contains(step, "filesort") &&
					!strings.Contains(query, "crashes > 0") && !strings.Contains(query, "crashes BETWEEN") {
				t.Errorf("plan: got %q for\n%s", step, query)
			}
		}
	}
	if explained < 20 {
		t.Errorf("statements explained: got %d, want those of every call", explained)
	}
}

// TestMariaDBFindsNamesWithoutReadingAll: names are looked up from one to the next,
// which a plan does not show.
func TestMariaDBFindsNamesWithoutReadingAll(t *testing.T) {
	t.Parallel()
	db := testdb.MariaDB(t)
	s := mariaStore(t, db)
	fill(t, db, 50_000)
	conn := testapp.Must[bun.Conn](t)(db.Conn(t.Context()))
	defer conn.Close()
	rowsRead := func() (n int) {
		err := conn.NewRaw("SELECT CAST(SUM(VARIABLE_VALUE) AS SIGNED) FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME LIKE 'HANDLER_READ%'").Scan(t.Context(), &n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := rowsRead()
	unregistered := testapp.Must[[]store.Unhandled](t)(s.Claims.Unhandled(t.Context(), conn, []store.Want{{Consumer: "c1", Payload: "p"}}))
	stored := testapp.Must[[]string](t)(s.Pending.StoredConsumers(t.Context(), conn))
	if read := rowsRead() - before; len(unregistered) != 19 || len(stored) != 20 || read > 10_000 {
		t.Errorf("names: got %d unregistered and %d consumers from %d rows, want 19 and 20 from 10,000 at most", len(unregistered),
			len(stored), read)
	}
}
