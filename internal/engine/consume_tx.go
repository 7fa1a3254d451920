package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Tx is a transaction of Bun or of database/sql.
type Tx interface{ bun.Tx | *sql.Tx }

// ConsumeTx makes a transactional consumer: see outbox.ConsumeTx.
func ConsumeTx[T bus.Payload, H Tx](
	name string, fn func(ctx context.Context, tx H, payload T) error, options ...bus.ConsumerOption,
) bus.Consumer {
	if fn == nil {
		return bus.Consume[T](name, nil, options...)
	}
	inTx := func(ctx context.Context, payload T) error {
		tx, err := currentTx[H](ctx, name)
		if err != nil {
			return err
		}
		return fn(ctx, tx, payload)
	}
	return bus.Consume(name, inTx, append(options[:len(options):len(options)], transactional)...)
}

// currentTx returns the transaction in which a consumer runs.
func currentTx[H Tx](ctx context.Context, consumer string) (tx H, err error) {
	current, ok := ctx.Value(txKey{}).(bun.Tx)
	if !ok {
		return tx, fmt.Errorf("outbox: consumer %q is transactional: only a Processor can run it", consumer)
	}
	switch tx := any(&tx).(type) {
	case *bun.Tx:
		*tx = current
	case **sql.Tx:
		*tx = current.Tx
	}
	return tx, nil
}

type (
	transactionalKey struct{} // of a setting
	txKey            struct{} // of the context's transaction
)

// transactional marks a consumer as made by ConsumeTx.
func transactional(c *bus.ConsumerConfig) { access.SetValue(c, transactionalKey{}, true) }

func isTransactional(c bus.ConsumerConfig) bool { return access.Value(&c, transactionalKey{}) != nil }

// errFenced releases a message that is no longer ours to run: another process may have claimed it.
var errFenced error = &bus.OutcomeError{Outcome: bus.Released, Err: bus.ErrLeaseLost}

// errHidden is the consumer's doing: the transaction holds the row lock, so no other one removed the
// message. It is permanent for a message that runs alone: each attempt would end like this, and might
// write again what the consumer has committed in SQL.
var errHidden = errors.New("the message is gone: the consumer removed it, ended the transaction or changed to another database, " +
	"or row-level security hides it")

const statementTimeout = 5 * time.Second

// transactor runs transactional consumers.
type transactor struct {
	store     *store.Store
	db        *bun.DB
	owner     string
	config    *ProcessorConfig
	registry  *bus.Registry
	ctx       context.Context // of statements that must outlive a stop
	outage    *outage.Outage
	uncounted *uncountedRuns
	handOffs  *handOffs // of messages that consumers produce
}

// runInTx is the innermost layer for transactional consumers. A run that loses a conflict is tried
// again at once, in a new transaction under the same timeout.
func (tr *transactor) runInTx(ctx context.Context, t *task, payload []byte) error {
	for try := 1; ; try++ {
		err := tr.tryInTx(ctx, t, payload)
		f, ok := err.(*fault)
		switch {
		case !ok:
			return err
		case f.of != conflict, try == conflictTries, ctx.Err() != nil:
			return tr.uncounted.outcome(t, f)
		}
		ctx = txn.WithRepeat(ctx)
	}
}

// tryInTx runs one transaction: begin, fence, decode and consume, remove, commit. A failed commit
// is an error of the handler, a *fault is not.
func (tr *transactor) tryInTx(ctx context.Context, t *task, payload []byte) error {
	own := tr.newConsumerTx(ctx)
	defer own.close() // also when a query hook of the application panics
	held, err := own.begin([]*task{t})
	if err != nil {
		return &fault{unstarted, err}
	}
	if len(held) == 0 {
		own.rollback()
		return errFenced
	}
	handlerCtx, wakeups := txn.WithWakeups(context.WithValue(ctx, txKey{}, own.tx.Tx))
	own.wakeups = wakeups
	wakeups.HandOffTo(tr.handOffs, own.tx.Tx, own.tx.Plans != nil)
	defer wakeups.Abandon()
	if err := t.worker.invoke(handlerCtx, t, payload); err != nil {
		if errors.Is(err, bus.ErrAbandoned) {
			own.interrupt()
			return err
		}
		err = own.blame(ctx, err)
		own.rollback()
		return err
	}
	if err := own.commit([]*task{t}); err != nil {
		if errors.Is(err, errHidden) {
			return bus.Permanent(err)
		}
		return condemnEnded(err, wakeups)
	}
	t.committed = true
	wakeups.Committed()
	wakeups.Send(tr.registry)
	return nil
}

// consumerTx is a transaction in which consumers run.
type consumerTx struct {
	transactor *transactor
	tx         store.RunTx
	session    store.Session
	wakeups    *txn.Wakeups // nil if nothing is handed off
	// The handler's timeout is not the transaction's: when a transaction's context ends,
	// database/sql rolls back asynchronously and hides the result. This context is ended only for a
	// transaction that nothing else can end.
	ctx context.Context
	end context.CancelFunc
}

func (tr *transactor) newConsumerTx(ctx context.Context) *consumerTx {
	t := &consumerTx{transactor: tr}
	t.ctx, t.end = context.WithCancel(context.WithoutCancel(ctx))
	return t
}

// begin begins the transaction, locks the messages and returns the ids of those still ours. It
// waits for a connection no longer than for a statement.
func (t *consumerTx) begin(tasks []*task) (held []int64, err error) {
	for try := 1; ; try++ {
		late := time.AfterFunc(statementTimeout, t.end)
		t.tx, err = t.transactor.store.Claims.BeginRun(t.ctx, t.transactor.db)
		late.Stop()
		if err != nil {
			return nil, fmt.Errorf("begin: %w", err)
		}
		if held, err = t.fence(tasks); err == nil {
			return held, nil
		}
		t.abort()
		lost := t.tx.Plans != nil && t.tx.Plans.Lost(t.ctx, err)
		t.tx.GiveBack()
		if try > 1 || !lost {
			return nil, fmt.Errorf("fence: %w", err)
		}
	}
}

// close ends what is left of the transaction. If an abandoned handler is still in a statement, the
// connection is given back once that has returned.
func (t *consumerTx) close() {
	t.end()
	if t.tx.Plans != nil {
		go t.tx.Plans.Close() //nolint:errcheck // as database/sql does for a transaction whose context has ended
	}
}

func (t *consumerTx) fence(tasks []*task) (held []int64, err error) {
	ctx, cancel := context.WithTimeout(t.ctx, statementTimeout)
	defer cancel()
	idle := tasks[0].consumer.settings.Timeout + abandonGrace + statementTimeout
	f := store.Fence{Owner: t.transactor.owner, Session: &t.session, Idle: idle}
	for _, task := range tasks {
		row := task.row
		f.Messages = append(f.Messages, store.Fenced{
			Claim: task.lease.id, ID: row.ID, Attempts: row.Attempts, Crashes: row.Crashes, Lane: row.Lane,
		})
	}
	return t.transactor.store.Claims.Fence(ctx, t.tx, f)
}

// interrupt ends the transaction of an abandoned handler. A rollback has to wait for the handler's
// current statement. Meanwhile the messages stay locked, and results settled with them wait.
func (t *consumerTx) interrupt() {
	ended := time.Now()
	t.end() // no further statement begins
	ctx, cancel := context.WithTimeout(t.transactor.ctx, statementTimeout)
	defer cancel()
	if err := t.transactor.store.Claims.Interrupt(ctx, t.transactor.db, t.session, ended); err != nil {
		t.transactor.outage.Failed("interrupt", err)
	}
}

// commit removes the messages and commits. If the answer is lost, it looks whether they still
// exist.
func (t *consumerTx) commit(tasks []*task) error {
	statement, cancel := context.WithTimeout(t.ctx, statementTimeout)
	defer cancel()
	ids := store.Each(tasks, func(t *task) int64 { return t.row.ID })
	if err := t.transactor.store.Intact(statement, t.tx.Tx); err != nil {
		return t.undone("before the commit", err)
	}
	n, err := t.transactor.store.Claims.Remove(statement, t.tx, t.session, ids...)
	if err == nil && n < len(ids) {
		err = t.replacedSince(statement, tasks, len(ids)-n)
	}
	if err != nil {
		return t.undone("remove", err)
	}
	if err := t.remember(statement, tasks); err != nil {
		return t.undone("remember", err)
	}
	if err := t.keep(statement, tasks); err != nil {
		return t.undone("keep", err)
	}
	if t.wakeups != nil {
		_ = t.wakeups.BeforeCommit(statement, t.tx.Tx) // the fence has just found the planned statements
	}
	defer time.AfterFunc(statementTimeout, t.end).Stop()
	committing, cancel := context.WithTimeout(t.ctx, statementTimeout)
	defer cancel()
	err = txn.Commit(committing, t.tx.Tx)
	t.tx.GiveBack()
	if err == nil {
		return nil
	}
	if class := dberr.ClassOf(err); class != dberr.Conflict && (t.ctx.Err() != nil || class.Outage() || class == dberr.Timeout) {
		if t.wakeups != nil {
			t.wakeups.Abandon() // a message that was replaced meanwhile is gone as well, so nothing is handed over
		}
		return t.transactor.afterLostCommit(context.WithoutCancel(t.ctx), tasks, err)
	}
	return ofTransaction("commit", err)
}

// errRowsOpen is the handler's fault, and costs an attempt.
var errRowsOpen = errors.New("outbox: the consumer has left rows of its transaction open: close them before it returns")

// undone rolls back after a statement of ours that failed. A connection that can do that was not
// lost: the driver says so while rows are open.
func (t *consumerTx) undone(statement string, err error) error {
	switch done := t.rollback(); {
	case !errors.Is(err, driver.ErrBadConn):
	case done:
		return errRowsOpen
	default:
		err = fmt.Errorf("%w: the connection is lost, or the consumer has left rows open", err)
	}
	return ofTransaction(statement, err)
}

// remember keeps the insert ids of consumed messages taken.
func (t *consumerTx) remember(ctx context.Context, tasks []*task) error {
	var all []store.Recent
	for _, task := range tasks {
		if r := task.recent(); r != nil {
			all = append(all, *r)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return t.transactor.store.Outbox.Remember(ctx, t.tx.Tx, all)
}

// replacedSince returns errHidden unless this transaction has itself replaced all of the missing messages.
func (t *consumerTx) replacedSince(ctx context.Context, tasks []*task, missing int) error {
	for _, task := range tasks {
		row := task.row
		replaced, err := t.transactor.store.Claims.Replaced(ctx, t.tx.Tx, row.ID, row.InsertID, access.Names(task.consumer.Consumer))
		if err != nil {
			return err
		}
		if replaced {
			missing--
		}
	}
	if missing > 0 {
		return errHidden
	}
	return nil
}

// afterLostCommit finds out whether a commit with a lost answer succeeded. Then none of its messages
// exists. A missing one proves nothing about the others: after a rollback a producer may replace it.
func (tr *transactor) afterLostCommit(ctx context.Context, tasks []*task, lost error) error {
	retry := outage.NewRetry()
	for len(tasks) > 0 {
		t := tasks[0]
		look, cancel := context.WithTimeout(ctx, statementTimeout)
		exists, err := tr.store.Claims.Exists(look, tr.db, t.row.ID)
		cancel()
		switch {
		case err == nil && exists:
			return ofTransaction("commit", lost)
		case err == nil:
			tasks = tasks[1:]
			continue
		}
		if !outage.Pause(t.lease.ctx, retry.NextBackOff()) {
			// The lease is gone. Releasing writes nothing to the message, so it is right either
			// way.
			return &bus.OutcomeError{Outcome: bus.Released, Err: fmt.Errorf("outbox: commit with unknown outcome: %w", lost)}
		}
	}
	return nil
}

// rollback ends a failed transaction, and reports whether that worked.
func (t *consumerTx) rollback() (done bool) {
	done = t.abort()
	t.tx.GiveBack()
	return done
}

// abort rolls back, and reports whether that worked. After an error the connection is lost and
// discarded, and the server rolls back by itself. If the driver cut the connection at the end of a
// statement's context, the server may notice only when the statement ends. Therefore it is
// interrupted: MariaDB gets no notice, and pgx's cancel request may not pass a pooler.
func (t *consumerTx) abort() (done bool) {
	defer time.AfterFunc(statementTimeout, t.end).Stop()
	err := txn.Rollback(t.transactor.ctx, t.tx.Tx)
	if err != nil && !errors.Is(err, sql.ErrTxDone) {
		t.transactor.config.Logger.Debug("rollback", "error", err)
		t.interrupt()
	}
	return err == nil
}
