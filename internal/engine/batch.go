package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// ConsumeBatchTx makes a transactional consumer of batches: see outbox.ConsumeBatchTx.
func ConsumeBatchTx[T bus.Payload, H Tx](
	name string, fn func(ctx context.Context, tx H, payloads []T) error, options ...bus.ConsumerOption,
) bus.Consumer {
	if fn == nil {
		return bus.ConsumeBatch[T](name, nil, options...)
	}
	inTx := func(ctx context.Context, payloads []T) error {
		tx, err := currentTx[H](ctx, name)
		if err != nil {
			return err
		}
		return fn(ctx, tx, payloads)
	}
	return bus.ConsumeBatch(name, inTx, append(options[:len(options):len(options)], transactional)...)
}

// consume runs a batch consumer for the waiting members and returns those to run again.
func (g *group) consume(waiting []*member) (rest []*member) {
	switch {
	case g.consumer().transactional && len(waiting) > 1:
		return g.tryBatch(waiting)
	case g.consumer().transactional:
		g.oneByOne(waiting)
	default:
		if waiting = g.inTime(waiting); len(waiting) == 0 {
			return nil
		}
		ctx, over := joinContexts(waiting)
		defer over()
		answerEach(waiting, g.call(ctx, waiting))
	}
	return nil
}

// tryBatch runs all members in one transaction. If some fail, it answers those and returns the
// others, which have no outcome yet.
func (g *group) tryBatch(members []*member) (rest []*member) {
	own := g.worker.executor.transactor.newConsumerTx(members[0].ctx)
	defer own.close() // also when a query hook of the application panics
	ids, err := own.begin(tasksOf(members))
	if err != nil {
		g.unstarted(members, err)
		return nil
	}
	held, others := g.split(members, ids)
	defer func() { g.oneByOne(others) }() // their rows may only be locked
	if held = g.inTime(held); len(held) == 0 {
		own.rollback()
		return nil
	}
	ctx, over := joinContexts(held)
	defer over()
	ctx, wakeups := txn.WithWakeups(context.WithValue(ctx, txKey{}, own.tx.Tx))
	errs := g.call(ctx, held)
	switch own.judge(ctx, held, errs) {
	case callAbandoned:
		own.interrupt()
		answerEach(held, errs)
		return nil
	case blameless:
		own.rollback()
		others = append(held, others...)
		return nil
	case partlyFailed:
		own.rollback()
		for _, m := range held {
			if m.failure != nil {
				m.outcome <- m.failure
			} else {
				rest = append(rest, m)
			}
		}
		return rest
	}
	if err := own.commit(tasksOf(held)); err != nil { // one of them may be to blame
		if ended := condemnEnded(err, wakeups); ended != err {
			answer(held, ended)
			return nil
		}
		repeat(held, err)
		others = append(held, others...)
		return nil
	}
	for _, m := range held {
		m.task.committed = true
	}
	wakeups.Send(g.worker.executor.registry)
	answerEach(held, errs)
	return nil
}

// judgement is the result of a batch's call in a transaction.
type judgement uint8

const (
	allDone       judgement = iota
	partlyFailed            // some or all of the members have a failure
	blameless               // the database or another transaction is to blame
	callAbandoned           // the call was abandoned
)

// judge decides what is to blame for the errors of a batch. An error shared by all is judged once.
func (t *consumerTx) judge(ctx context.Context, members []*member, errs []error) judgement {
	found := allDone
	for i, err := range errs {
		switch {
		case err == nil:
			continue
		case errors.Is(err, bus.ErrAbandoned):
			return callAbandoned
		case i > 0 && identical(err, errs[i-1]):
		default:
			if f, ok := t.blame(ctx, err).(*fault); ok {
				repeat(members, f)
				return blameless
			}
		}
		members[i].failure, found = err, partlyFailed
	}
	return found
}

// repeat marks the contexts of members that run again because they lost a conflict.
func repeat(members []*member, err error) {
	if f, ok := err.(*fault); ok && f.of == conflict {
		for _, m := range members {
			m.ctx = txn.WithRepeat(m.ctx)
		}
	}
}

// identical reports whether two errors are the same value, as when a batch failed as a whole.
func identical(a, b error) bool {
	return a != nil && b != nil && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// split separates the members with one of the ids from the others. A member behind one of the
// others in the order of its key is one of them, too.
func (g *group) split(members []*member, ids []int64) (with, without []*member) {
	for _, m := range members {
		if slices.Contains(ids, m.task.row.ID) && g.order.mayRun(m.task, with) {
			with = append(with, m)
		} else {
			without = append(without, m)
		}
	}
	return with, without
}

func answerEach(members []*member, errs []error) {
	for i, m := range members {
		m.outcome <- errs[i]
	}
}

// joinContexts returns a context that ends with the first of the members' contexts. Its values are
// the first member's.
func joinContexts(members []*member) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(members[0].ctx)
	stops := make([]func() bool, 0, len(members))
	for _, m := range members[1:] {
		stops = append(stops, context.AfterFunc(m.ctx, func() { cancel(context.Cause(m.ctx)) }))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// inTime answers members whose messages have expired and returns the others. Members behind a
// poisoned message of the same key are answered, too.
func (g *group) inTime(members []*member) (left []*member) {
	var poisoned []*task
	for _, m := range members {
		err := g.worker.executor.expired(m.message)
		if before := g.order.before(m.task); before != nil && slices.Contains(poisoned, before) {
			err = behind(m.task)
		}
		if err == nil {
			left = append(left, m)
			continue
		}
		if bus.OutcomeOf(err).Outcome != bus.Discarded {
			poisoned = append(poisoned, m.task)
		}
		m.outcome <- err
	}
	return left
}

// call runs the consumer's function for all members and returns the error of each.
func (g *group) call(ctx context.Context, members []*member) []error {
	batch := store.Each(members, func(m *member) *bus.Message { return m.message })
	t := members[0].task
	err := g.worker.begin(ctx, t, call{
		ctx: ctx, consumer: t.consumer, batch: batch, members: members, codec: g.worker.executor.registry.Codec(),
	})
	errs, ok := err.(outcomes)
	if !ok {
		errs = slices.Repeat([]error{err}, len(members))
	}
	for i := range errs { // one member may have cancelled the call
		errs[i] = releaseCancelled(ctx, errs[i])
	}
	return g.order.releaseBehind(members, besideStopped(members, errs))
}

// outcomes are the errors of a batch's messages.
type outcomes []error

// Error implements error.
func (o outcomes) Error() string { return fmt.Sprintf("the outcomes of %d messages", len(o)) }
