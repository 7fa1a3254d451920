package engine

import (
	"context"
	"errors"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/steps"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// stepStorage has the steps of the message of a call.
type stepStorage struct {
	transactor *transactor
	call       *stoppable
	lease      *lease // of the call; the task may get another one later
	row        *store.Message
}

// Live implements steps.Storage.
func (s *stepStorage) Live() bool { return !s.call.over.Load() && s.lease.live(time.Now()) }

// ofStorage returns the error of a statement about steps. It is a fault if the message is not to blame: the
// run does not count as an attempt then.
func ofStorage(held bool, err error) error {
	if err == nil && !held {
		return bus.ErrLeaseLost
	}
	switch class := dberr.ClassOf(err); {
	case class.Outage(), class == dberr.Timeout, class == dberr.LockTimeout, class == dberr.Conflict:
		return &fault{database, err}
	}
	return err
}

// ofSteps returns the error of a run. It does not count as an attempt if the lease ended, or the storage
// of the steps failed without fault of the message, unless the run was interrupted, or the consumer has decided otherwise.
func (tr *transactor) ofSteps(ctx context.Context, t *task, err error) error {
	if err == nil || bus.OutcomeOf(err).Outcome != bus.Errored {
		return err
	}
	if errors.Is(err, bus.ErrLeaseLost) { // the claim may still be in the database: a clock was set, for example
		return &bus.OutcomeError{Outcome: bus.Released, Err: err}
	}
	_, failed := errors.AsType[*fault](err)
	cause := context.Cause(ctx)
	if !failed || cause != nil && !errors.Is(cause, bus.ErrTimeout) {
		return err
	}
	return tr.uncounted.outcome(t, &fault{database, err})
}

// Load implements steps.Storage.
func (s *stepStorage) Load(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	text, held, err := s.transactor.store.Steps.Read(ctx, s.transactor.db, s.message())
	return text, ofStorage(held, err)
}

// message is the message as it was claimed.
func (s *stepStorage) message() store.Fenced {
	return store.Fenced{Claim: s.lease.id, ID: s.row.ID, Attempts: s.row.Attempts, Crashes: s.row.Crashes, Lane: s.row.Lane}
}

// Append implements steps.Storage.
func (s *stepStorage) Append(ctx context.Context, line string) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	held, err := s.transactor.store.Steps.Append(ctx, s.transactor.db, s.transactor.owner, s.message(), line)
	return ofStorage(held, err)
}

// steps returns the steps of the call's message. A batch has none, nor has a consumer with a
// transaction: what it does is undone with that.
func (s *stoppable) steps() *steps.Log {
	if s.of.consumer.settings.BatchSize > 0 || s.of.consumer.transactional {
		return nil
	}
	if l := s.log.Load(); l != nil {
		return l
	}
	e := s.of.worker.executor
	storage := &stepStorage{e.transactor, s, s.of.lease, s.of.row}
	s.log.CompareAndSwap(nil, steps.New(storage, e.registry.Codec(), s.of.message.Attempt))
	return s.log.Load()
}
