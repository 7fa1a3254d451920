//go:build unix

package chaos_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// run is a database with jobs, and the processes that work on them.
type run struct {
	*bar
	ctx      context.Context
	dsn      string
	db       *bun.DB
	dir      string // of the ledger
	config   chaos.WorkerConfig
	producer *outbox.Producer
	registry *bus.Registry
	workers  []*chaos.Worker
	former   []*chaos.Worker // all there ever were: each has a name of its own
	jobs     []int
	never    []int
	doomed   []int
	keys     map[int]string         // of jobs
	died     map[*chaos.Worker]bool // of what they did
	killed   map[string]time.Time   // workers, by their names
	crashes  int64                  // that the workers counted, once they have stopped
	repeated atomic.Int64           // conflicts of users' own transactions
}

// newRun prepares a run on a database of its own on the server of the DSN.
func newRun(b *bar, dsn string, config chaos.WorkerConfig) *run {
	b.Helper()
	dir, err := os.MkdirTemp("", "chaos-ledger.")
	if err != nil {
		b.Fatal(err)
	}
	b.atEnd(func() { _ = os.RemoveAll(dir) })
	r := &run{bar: b, ctx: context.WithoutCancel(b.Context()), dsn: dsn, db: openDSN(b, dsn), dir: dir, config: config,
		killed: make(map[string]time.Time), keys: make(map[int]string), died: make(map[*chaos.Worker]bool)}
	// Workers may have a DSN of their own. The checker's is never special.
	r.config.DSN, r.config.Ledger = cmp.Or(config.DSN, dsn), r.dir
	if r.config.Lease == 0 {
		r.config.Lease = 3 * time.Second
	}
	if r.config.Drain == 0 {
		r.config.Drain = 10 * time.Second
	}
	if r.registry, err = chaos.NewRegistry(nil, config, config.Relay.Declared()...); err != nil {
		b.Fatal(err)
	}
	if r.producer, err = outbox.NewProducer(r.registry, outbox.ProducerConfig{}); err != nil {
		b.Fatal(err)
	}
	testapp.OK(b, outbox.Migrate(r.ctx, r.db, r.registry.Tables()))
	r.execEach(of(b, keepHistory, mariaHistory))
	if len(config.Stepped) > 0 {
		r.execEach("CREATE TABLE step_calls (job bigint, step int, at bigint);\nCREATE TABLE step_results (job bigint, step int, at bigint);")
	}
	b.Cleanup(r.keepLogs)
	b.Cleanup(r.killAll)
	return r
}

func (r *run) exec(query string, args ...any) {
	r.Helper()
	if _, err := r.db.NewRaw(query, args...).Exec(r.ctx); err != nil {
		r.Fatalf("%.60s: %v", query, err)
	}
}

// execEach executes statements that are a paragraph each.
func (r *run) execEach(statements string) {
	r.Helper()
	for _, statement := range strings.Split(strings.TrimSpace(statements), "\n\n") {
		r.exec(statement)
	}
}

func (r *run) count(query string, args ...any) (n int) {
	r.Helper()
	if err := r.db.NewRaw(query, args...).Scan(r.ctx, &n); err != nil {
		r.Fatalf("%.60s: %v", query, err)
	}
	return n
}

// start starts a worker in the place i of the crew, or one more.
func (r *run) start(i int) *chaos.Worker { r.Helper(); return r.startAs(i, r.config) }

// startAs starts one that is not like the others.
func (r *run) startAs(i int, config chaos.WorkerConfig) *chaos.Worker {
	r.Helper()
	config.Name = fmt.Sprintf("worker-%03d", len(r.former))
	config.DSN = string(chaos.Source(config.DSN).As(config.Name))
	w := testapp.Must[*chaos.Worker](r)(chaos.StartWorker(config))
	r.atEnd(func() { w.Signal(syscall.SIGKILL) }) // stopped or not
	r.former = append(r.former, w)
	if i < len(r.workers) {
		r.workers[i] = w
	} else {
		r.workers = append(r.workers, w)
	}
	return w
}

// crew starts so many workers more.
func (r *run) crew(n int) {
	r.Helper()
	for range n {
		r.start(len(r.workers))
	}
}

func (r *run) killAll() {
	for _, w := range r.workers {
		_ = w.Kill() // whatever it did, the bar is over
	}
}

// kill kills a worker, which must not have died of something else.
func (r *run) kill(i int) {
	r.Helper()
	w := r.workers[i]
	r.killed[w.Name()] = time.Now()
	if err := w.Kill(); err != nil {
		r.Error(err)
	}
}

// stopAll stops every worker in order.
func (r *run) stopAll() {
	r.Helper()
	for _, w := range r.workers {
		report, _, err := w.Stop()
		if err != nil {
			r.Error(err)
		}
		r.crashes += report.Stats.Crashed
	}
	r.workers = nil
}

// produce commits n more jobs, and rolls back one more.
func (r *run) produce(n int, takes func() time.Duration) {
	r.Helper()
	for n > 0 {
		batch := min(n, 500)
		n -= batch
		first := len(r.jobs) + len(r.never)
		items := make([]outbox.Item, batch)
		for i := range items {
			items[i].Payload = chaos.Job{N: first + i, Takes: takes()}
			r.jobs = append(r.jobs, first+i)
		}
		testapp.OK(r, testapp.Second(r.producer.ProduceMany(r.ctx, r.db, items...)))
		r.rollBack()
	}
}

// rollBack produces a job in a transaction that is rolled back.
func (r *run) rollBack() {
	r.Helper()
	job := chaos.Job{N: len(r.jobs) + len(r.never)}
	r.never = append(r.never, job.N)
	tx := testapp.Must[bun.Tx](r)(r.db.BeginTx(r.ctx, nil))
	if _, err := r.producer.Produce(r.ctx, tx, job); err != nil {
		r.Error(err)
	}
	testapp.OK(r, tx.Rollback())
}

// pending counts messages that wait or run.
func (r *run) pending() int { r.Helper(); return r.count("SELECT count(*) FROM consumer_messages") }

// settled tells whether nothing waits, runs or is claimed any more.
func (r *run) settled() bool {
	r.Helper()
	return r.count("SELECT (SELECT count(*) FROM consumer_messages) + (SELECT count(*) FROM message_claims)") == 0
}

func (r *run) runs(query string, args ...any) (runs []chaos.Run) {
	r.Helper()
	var rows []struct {
		Consumer string
		Job      int
	}
	if err := r.db.NewRaw(query, args...).Scan(r.ctx, &rows); err != nil {
		r.Fatalf("%.60s: %v", query, err)
	}
	for _, row := range rows {
		runs = append(runs, chaos.Run(row))
	}
	return runs
}

func (r *run) rowsOf(table string) []chaos.Run {
	r.Helper()
	job := of(r.bar, "(payload::json->>'n')::int", "CAST(JSON_VALUE(payload, '$.n') AS SIGNED)")
	return r.runs("SELECT consumer_type AS consumer, " + job + " AS job FROM " + table)
}

func (r *run) ledger() chaos.Ledger {
	r.Helper()
	ledger := testapp.Must[chaos.Ledger](r)(chaos.ReadLedger(r.dir))
	return ledger
}

// nonePoisoned fails the bar when a message is poisoned.
func (r *run) nonePoisoned() {
	r.Helper()
	if poisoned := r.count("SELECT count(*) FROM poisoned_messages"); poisoned > 0 {
		r.Errorf("poisoned: got %d, want none", poisoned)
	}
}

// judge reads what is left of the run and reports every violation.
func (r *run) judge() chaos.Findings { r.Helper(); return r.judgeAfter(false) }

// judgeAfter is judge for a run in which, if so, nothing but kills went wrong.
func (r *run) judgeAfter(onlyKills bool) chaos.Findings {
	r.Helper()
	e := r.evidence()
	e.OnlyKills = onlyKills
	f := chaos.Judge(e)
	r.onlyLogged()
	if violations := f.Violations(); len(violations) > 0 {
		r.Errorf("violations:\n%s", strings.Join(violations, "\n"))
	}
	return f
}

// evidence is what is left of the run.
func (r *run) evidence() chaos.Evidence {
	r.Helper()
	effects := make(map[chaos.Run]int)
	for _, run := range r.runs("SELECT consumer, job FROM effects") {
		effects[run]++
	}
	history, messages := r.history()
	e := chaos.Evidence{
		Consumers: r.config.Consumers(), Tx: r.config.Tx, Jobs: r.jobs, Never: r.never, Doomed: r.doomed,
		Ledger: r.ledger(), Pending: r.rowsOf("consumer_messages"), Poisoned: r.rowsOf("poisoned_messages"),
		Effects: effects, Lease: r.config.Lease, Claims: r.count("SELECT count(*) FROM message_claims"),
		History: history, Messages: messages, Keys: r.keys, Ordered: r.config.Ordered, Shared: r.config.Shared, Skips: r.config.Skips,
	}
	e.Struck, _ = e.Strikes(r.killed)
	return e
}
