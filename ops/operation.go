package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Operation is a change by a person: one that is done, or one of many messages that a [Runner] carries
// out. It is kept for 90 days. Its instants are in UTC, on the database's clock.
type Operation struct {
	ID      int64          `json:"id"`
	Action  Action         `json:"action"`
	Actor   string         `json:"actor"`
	Reason  string         `json:"reason,omitempty"`
	Target  Target         `json:"target"`
	Preview *Preview       `json:"preview,omitempty"` // of one that was planned
	State   OperationState `json:"state"`
	Rate    int            `json:"rate,omitempty"`   // messages per second
	Canary  int            `json:"canary,omitempty"` // messages that go first
	Changed int64          `json:"changed"`
	// Skipped are messages that matched and stay as they are: those whose insert id is pending,
	// those that a process holds, and pending ones of a consumer that the preview does not name.
	Skipped int64 `json:"skipped,omitempty"`
	// Note says why it stands still, or what was decided, by whom and why, the last first. A
	// principal that may not read contents does not see it, nor the text that the target looks for;
	// Hidden is true if there is any.
	Note       string    `json:"note,omitempty"`
	Hidden     bool      `json:"hidden,omitempty"`
	CreatedAt  time.Time `json:"created_at,omitzero"`
	StartsAt   time.Time `json:"starts_at,omitzero"` // until then nothing has changed, and it can be undone
	FinishedAt time.Time `json:"finished_at,omitzero"`
}

// OperationState says how far an operation is.
type OperationState string

// The states of an operation.
const (
	Planned OperationState = "planned" // it is not started
	Waiting OperationState = "waiting" // it starts at StartsAt, and can be undone until then
	Canary  OperationState = "canary"  // its canaries run
	Running OperationState = "running"
	Paused  OperationState = "paused"  // it has stopped itself: see its note
	Started OperationState = "started" // a change of few that is under way, or whose process died: then Stop closes it
	Done    OperationState = "done"    // all is done
	Undone  OperationState = "undone"  // it was taken back before it changed anything
	Stopped OperationState = "stopped" // it was stopped, or it could not be done
)

// Target is what an operation is about. Which of it is set goes by the action.
type Target struct {
	Poisoned *poison.Filter `json:"poisoned,omitempty"` // requeue, discard, edit, export
	Pending  *admin.Filter  `json:"pending,omitempty"`  // cancel, reschedule, run now
	IDs      []int64        `json:"ids,omitempty"`      // instead of a filter
	At       time.Time      `json:"at,omitzero"`        // reschedule
	Consumer string         `json:"consumer,omitempty"` // pause, resume
	Schedule int64          `json:"schedule,omitempty"`
	// Projection and Version are of a projection.
	Projection string `json:"projection,omitempty"`
	Version    int    `json:"version,omitempty"`
	// Operation is the one that was decided on. The rest is its target.
	Operation int64 `json:"operation,omitempty"`
}

// consumer is the one consumer that it is about, or empty.
func (t Target) consumer() string {
	switch {
	case t.Poisoned != nil:
		return t.Poisoned.Consumer
	case t.Pending != nil:
		return t.Pending.Consumer
	default:
		return t.Consumer
	}
}

// Errors of operations; use errors.Is.
var (
	// ErrNotFound: there is no operation with that id.
	ErrNotFound = errors.New("no such operation")
	// ErrInvalidState: the operation is not in a state in which that can be done.
	ErrInvalidState = errors.New("its state does not allow that")
	// ErrInProgress: the operation, or one with the same target, is under way.
	ErrInProgress = errors.New("the same is under way")
	// ErrExpired: the plan is too old to be started. It is an [ErrInvalidState].
	ErrExpired = fmt.Errorf("%w: the plan has expired", ErrInvalidState)
)

func newOperation(row store.Operation) Operation {
	o := Operation{
		ID: row.ID, Action: Action(row.Kind), Actor: row.Actor, Reason: row.Reason, State: OperationState(row.State), Rate: int(row.Rate), Canary: int(row.Canary),
		Changed: row.Changed, Skipped: row.Skipped, Note: row.Note, CreatedAt: row.CreatedAt.Time, StartsAt: row.StartsAt.Time, FinishedAt: row.FinishedAt.Time,
	}
	_ = json.Unmarshal(row.Target, &o.Target) // what another version has written may lack something
	if len(row.Preview) > 0 {
		o.Preview = new(Preview)
		_ = json.Unmarshal(row.Preview, o.Preview)
	}
	return o
}

// operation is what the principal sees of one.
func (s *Session) operation(ctx context.Context, o Operation) Operation {
	f := o.Target.Poisoned
	searched := f != nil && f.Error != ""
	if o.Note == "" && !searched {
		return o
	}
	if s.may(Read, o.Target.consumer()) != nil {
		o.Note, o.Hidden = "", true
	} else if ours, theirs, found := strings.Cut(o.Note, foreign); found {
		o.Note = ours
		if theirs = s.text(ctx, theirs); theirs != "" {
			o.Note += foreign + theirs
		} else {
			o.Hidden = true
		}
	}
	if searched && s.maySearch(ctx, textOf(*f)) != nil {
		seen := *f
		seen.Error = ""
		o.Target.Poisoned, o.Hidden = &seen, true
	}
	return o
}

// foreign separates what a note says by itself from the text of an error.
const foreign = ", and said: "

// Operations lists operations, the newest first, and the page after it, which is nil when there is none.
func (s *Session) Operations(ctx context.Context, page admin.Page) ([]Operation, *admin.Page, error) {
	size, before := page.Size, int64(0)
	if size == 0 {
		size = 50
	}
	var err error
	if page.After != "" {
		before, err = strconv.ParseInt(page.After, 10, 64)
	}
	if err != nil || size < 0 || size > 1000 {
		return nil, nil, fmt.Errorf("ops: operations: %w: page %+v: sizes of 1 to 1000 are allowed, and what a listing returned", bus.ErrInvalidOption, page)
	}
	rows, err := look(ctx, s, View, "", func(ctx context.Context, db bun.IDB) ([]store.Operation, error) {
		return s.service.store.Operations(ctx, db, store.OperationFilter{Before: before}, size+1)
	})
	var next *admin.Page
	if len(rows) > size {
		rows = rows[:size]
		next = &admin.Page{Size: size, After: strconv.FormatInt(rows[size-1].ID, 10)}
	}
	return store.Each(rows, func(row store.Operation) Operation { return s.operation(ctx, newOperation(row)) }), next, err
}

// HasRunner reports whether a live process carries out operations: whether it runs a [Runner].
func (s *Session) HasRunner(ctx context.Context) (bool, error) {
	return look(ctx, s, View, "", s.service.carried)
}

// runnerKind is that of a Runner among processes.
const runnerKind = "operations"

func (d *Service) carried(ctx context.Context, db bun.IDB) (bool, error) {
	fleet, err := d.admin.Processes(ctx, db, lostWithin)
	return slices.ContainsFunc(fleet, func(p admin.Process) bool { return p.Kind == runnerKind && p.Status == admin.ProcessAlive }), err
}

// Operation returns one operation, or [ErrNotFound]. It looks where operations are written, [Config].DB.
func (s *Session) Operation(ctx context.Context, id int64) (o Operation, err error) {
	if err = s.may(View, ""); err == nil {
		o, err = lookIn(ctx, s.service, s.service.config.DB, lookTime, func(ctx context.Context, db bun.IDB) (Operation, error) { return s.service.operationIn(ctx, db, id) })
	}
	if err != nil {
		return Operation{}, fmt.Errorf("ops: operation %d: %w", id, err)
	}
	return s.operation(ctx, o), nil
}

func (d *Service) operationIn(ctx context.Context, db bun.IDB, id int64) (Operation, error) {
	rows, err := d.store.Operations(ctx, db, store.OperationFilter{ID: id}, 1)
	if err == nil && len(rows) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Operation{}, err
	}
	return newOperation(rows[0]), nil
}
