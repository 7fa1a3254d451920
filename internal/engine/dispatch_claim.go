package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// enqueuer makes tasks of claimed messages and queues them.
type enqueuer struct {
	store     *store.Store
	db        *bun.DB
	owner     string
	config    *ProcessorConfig
	parent    context.Context // of the contexts of leases
	catalog   *catalog
	queue     *queue
	pollState *pollState // it estimates the database's clock
	ledger    *ledger
	recorder  *recorder
	checker   *declarationChecker
}

// enqueue hands claimed messages to the workers and returns the claim with the accepted ones. With an
// error, none is accepted.
func (en *enqueuer) enqueue(ctx context.Context, c store.Claim) (store.Claim, error) {
	// Opened first, so that the lease is renewed while messages are renamed and events are read.
	l := en.ledger.open(en.parent, c.ID, len(c.Messages), c.Sent.Add(en.config.LeaseDuration))
	l.lanes, l.deep = en.catalog.lanesOf(c), c.News.Deep
	l.urgent = l.lanes != nil && l.lanes.bounded()
	l.unique = slices.ContainsFunc(c.Messages, func(m store.Message) bool { return m.InsertID != "" })
	stay, err := en.rename(ctx, c)
	if err == nil {
		err = en.store.EventLog.FillIn(ctx, en.db, c.Messages)
	}
	tasks := make([]task, len(c.Messages))
	now := time.Now()
	l.ahead = en.pollState.clock(now).Sub(now)
	for i := range c.Messages {
		row := &c.Messages[i]
		newTask(&tasks[i], row, en.catalog.byName[row.ConsumerType], l, now)
		en.checker.checkRoutes(&tasks[i].message)
		en.checker.checkKey(&tasks[i])
	}
	if err != nil || l.ctx.Err() != nil {
		stay = len(tasks)
	}
	for i := len(tasks) - stay; i < len(tasks); i++ {
		en.recorder.record(&tasks[i], errUnstarted)
	}
	tasks = tasks[:len(tasks)-stay]
	if len(tasks) > 0 && !en.queue.push(tasks) {
		for i := range tasks {
			en.recorder.record(&tasks[i], errUnstarted)
		}
		tasks = nil
	}
	c.Messages = c.Messages[:len(tasks)] // the rest is not in flight
	if err != nil {
		return c, fmt.Errorf("claim: %w", err)
	}
	return c, nil
}

// rename stores claimed messages of forwarding consumers under their present names, before they
// run. Otherwise a program from before the rename, which consumes by the former name, could run
// them again if this process is lost. rename returns how many messages could not be renamed and so
// must not run; they come last. Messages that run in the order of keys keep their names, on which
// that order depends.
func (en *enqueuer) rename(ctx context.Context, c store.Claim) (stay int, err error) {
	var rows []store.Former
	for i := range c.Messages {
		row := &c.Messages[i]
		to := en.catalog.byName[row.ConsumerType]
		inOrder := row.Lane != 0 && to.keyConcurrency() == 0
		if to.settings.Forwards && to.Name() != row.ConsumerType && !inOrder {
			rows = append(rows, store.Former{Message: row, Name: to.Name()})
		}
	}
	if len(rows) == 0 {
		return 0, nil
	}
	renamed, err := en.store.Claims.Rename(ctx, en.db, en.owner, c.ID, rows)
	if err != nil || len(renamed) == len(rows) {
		return 0, err
	}
	asked := make(map[int64]bool, len(rows))
	for _, row := range rows {
		asked[row.ID] = true
	}
	stays := func(m store.Message) int {
		if asked[m.ID] && !renamed[m.ID] {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(c.Messages, func(a, b store.Message) int { return stays(a) - stays(b) })
	return len(rows) - len(renamed), nil
}
