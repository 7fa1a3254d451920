package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

// Operations shows and changes operations. [Session.Operations] returns it; it is safe for
// concurrent use.
type Operations struct{ access }

// Operation is a change by a principal: either a change that was made at once, or a change of many
// messages that a [Runner] carries out. Operations are kept for 90 days. Times are in UTC, on the
// database's clock.
type Operation struct {
	ID      int64          `json:"id"`
	Action  Action         `json:"action"`
	Actor   string         `json:"actor"`
	Reason  string         `json:"reason,omitempty"`
	Target  Target         `json:"target"`
	Preview *Preview       `json:"preview,omitempty"` // if it was planned
	State   OperationState `json:"state"`
	Rate    int            `json:"rate,omitempty"`   // messages per second
	Canary  int            `json:"canary,omitempty"` // messages that go first
	Changed int64          `json:"changed"`
	// Skipped counts messages that matched and stay unchanged: their insert id is pending, a
	// processor holds them, or they belong to a consumer that the preview does not name.
	Skipped int64 `json:"skipped,omitempty"`
	// Note is why the operation is paused or waits, or each decision with its principal and reason,
	// the latest first. A principal that may not read contents does not see the note, nor the text
	// that the target searches for; then Hidden is true.
	Note       string    `json:"note,omitempty"`
	Hidden     bool      `json:"hidden,omitempty"`
	CreatedAt  time.Time `json:"created_at,omitzero"`
	StartsAt   time.Time `json:"starts_at,omitzero"` // until then nothing changes and it can be undone
	FinishedAt time.Time `json:"finished_at,omitzero"`
}

// OperationState is the progress of an operation.
type OperationState string

// The states of an operation.
const (
	Planned OperationState = "planned" // not started
	Waiting OperationState = "waiting" // starts at StartsAt, and can be undone until then
	Canary  OperationState = "canary"  // its canaries run
	Running OperationState = "running"
	Paused  OperationState = "paused"  // paused itself: see its note
	Started OperationState = "started" // a change by ids that is in progress, or whose process died: Stop closes it
	Done    OperationState = "done"    // finished
	Undone  OperationState = "undone"  // cancelled before it changed anything
	Stopped OperationState = "stopped" // stopped, or failed
)

// Target is what an operation changes. The action determines which fields are set.
type Target struct {
	Poisoned *poison.Filter `json:"poisoned,omitempty"` // requeue, discard, edit, export
	Pending  *admin.Filter  `json:"pending,omitempty"`  // cancel, reschedule, run now
	IDs      []int64        `json:"ids,omitempty"`      // instead of a filter
	At       time.Time      `json:"at,omitzero"`        // reschedule
	Consumer string         `json:"consumer,omitempty"` // pause, resume
	Schedule int64          `json:"schedule,omitempty"`
	// Expression and Zone are those that a schedule gets, and OldExpression and OldZone those that it
	// had.
	Expression    string `json:"expression,omitempty"`
	Zone          string `json:"zone,omitempty"`
	OldExpression string `json:"old_expression,omitempty"`
	OldZone       string `json:"old_zone,omitempty"`
	// Projection and Version name a projection's version.
	Projection string `json:"projection,omitempty"`
	Version    int    `json:"version,omitempty"`
	// Operation is the id of the operation that was undone, stopped, resumed or changed in rate.
	// The other fields are its target.
	Operation int64 `json:"operation,omitempty"`
}

// consumer is the only consumer that the target concerns, or empty.
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
	// ErrNotFound is returned when no operation has the id.
	ErrNotFound = errors.New("no such operation")
	// ErrInvalidState is returned when the operation's state does not allow the action.
	ErrInvalidState = errors.New("the operation's state does not allow this")
	// ErrInProgress is returned when the operation, or one with the same target, is already in
	// progress.
	ErrInProgress = errors.New("the operation is already in progress")
	// ErrExpired is returned when a plan is too old to start. It wraps [ErrInvalidState].
	ErrExpired = fmt.Errorf("%w: the plan has expired", ErrInvalidState)
)

func newOperation(row store.Operation) Operation {
	o := Operation{
		ID: row.ID, Action: Action(row.Kind), Actor: row.Actor, Reason: row.Reason, State: OperationState(row.State),
		Rate: int(row.Rate), Canary: int(row.Canary),
		Changed: row.Changed, Skipped: row.Skipped, Note: row.Note, CreatedAt: row.CreatedAt.Time, StartsAt: row.StartsAt.Time,
		FinishedAt: row.FinishedAt.Time,
	}
	_ = json.Unmarshal(row.Target, &o.Target) // another version may write other fields
	if len(row.Preview) > 0 {
		o.Preview = new(Preview)
		_ = json.Unmarshal(row.Preview, o.Preview)
	}
	if why := longCanary(row); why != "" {
		o.Note = o.noted(why, "")
	}
	return o
}

// operation redacts an operation for the principal.
func (s *Operations) operation(ctx context.Context, o Operation) Operation {
	f := o.Target.Poisoned
	searched := f != nil && f.Error != ""
	if o.Note == "" && !searched {
		return o
	}
	if s.may(Read, o.Target.consumer()) != nil {
		o.Note, o.Hidden = "", true
	} else if ours, theirs, found := strings.Cut(o.Note, foreign); found {
		o.Note = ours
		if theirs != "" {
			theirs = s.textOfAll(ctx, o, theirs)
		}
		if theirs != "" {
			o.Note += foreign + theirs
		} else {
			o.Hidden = true
		}
	}
	if searched && s.textOfAll(ctx, o, f.Error) != f.Error {
		seen := *f
		seen.Error = ""
		o.Target.Poisoned, o.Hidden = &seen, true
	}
	return o
}

// textOfAll returns what the principal may see of an error text, whichever of the operation's messages it is about.
func (s *Operations) textOfAll(ctx context.Context, o Operation, text string) string {
	about := []Content{{Consumer: o.Target.consumer()}}
	if o.Target.Poisoned != nil {
		about[0].PayloadType = o.Target.Poisoned.PayloadType
	}
	if o.Preview != nil {
		of := o.Preview.Pending
		if o.Preview.Poisoned != nil {
			of = o.Preview.Poisoned.Kinds
		}
		for _, k := range of {
			about = append(about, Content{Consumer: k.Consumer, PayloadType: k.PayloadType})
		}
	}
	for _, c := range about {
		text = s.text(ctx, c, text)
	}
	return text
}

// foreign separates a note's own text from the text of an error.
const foreign = "; error: "

// List returns a page of operations, newest first, and the next page, which is nil after the last
// one. A page that List did not return, or a Size above 1000, is bus.ErrInvalidOption.
func (s *Operations) List(ctx context.Context, page admin.Page) ([]Operation, *admin.Page, error) {
	size, before := cmp.Or(page.Size, 50), int64(0)
	var err error
	if page.After != "" {
		before, err = strconv.ParseInt(page.After, 10, 64)
	}
	if err != nil || size < 0 || size > 1000 {
		return nil, nil, fmt.Errorf(
			"ops: operations: %w: page %+v: sizes 1 to 1000 and pages that List returned are allowed", bus.ErrInvalidOption, page,
		)
	}
	rows, err := look(ctx, s.access, View, "", func(ctx context.Context, db bun.IDB) ([]store.Operation, error) {
		return s.service.store.Operations.List(ctx, db, store.OperationFilter{Before: before}, size+1)
	})
	var next *admin.Page
	if len(rows) > size {
		rows = rows[:size]
		next = &admin.Page{Size: size, After: strconv.FormatInt(rows[size-1].ID, 10)}
	}
	return store.Each(rows, func(row store.Operation) Operation { return s.operation(ctx, newOperation(row)) }), next, err
}

// Get returns one operation from [Config].DB, or [ErrNotFound].
func (s *Operations) Get(ctx context.Context, id int64) (o Operation, err error) {
	if err = s.may(View, ""); err == nil {
		o, err = lookIn(
			ctx, s.service, s.service.config.DB, lookTime,
			func(ctx context.Context, db bun.IDB) (Operation, error) { return s.service.operationIn(ctx, db, id) },
		)
	}
	if err != nil {
		return Operation{}, fmt.Errorf("ops: operation %d: %w", id, err)
	}
	return s.operation(ctx, o), nil
}

func (s *Service) operationIn(ctx context.Context, db bun.IDB, id int64) (Operation, error) {
	rows, err := s.store.Operations.List(ctx, db, store.OperationFilter{ID: id}, 1)
	if err == nil && len(rows) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Operation{}, err
	}
	return newOperation(rows[0]), nil
}

// lockPlans locks a plan and all equal plans, in the order of their ids, so that only one of them
// starts. Of two concurrent starts, the later one locks both plans. The other checks for
// operations in progress once it holds its own lock.
func (s *Service) lockPlans(ctx context.Context, tx bun.Tx, id int64) (store.Operation, error) {
	if err := s.store.WriteFirst(ctx, tx); err != nil {
		return store.Operation{}, err
	}
	o, err := s.operationIn(ctx, tx, id)
	if err != nil {
		return store.Operation{}, err
	}
	plans, err := s.same(ctx, tx, o, Planned)
	if err != nil {
		return store.Operation{}, err
	}
	ids := append(store.Each(plans, func(o Operation) int64 { return o.ID }), id)
	rows, err := s.store.Operations.LockMany(ctx, tx, store.OperationFilter{IDs: ids})
	if err != nil {
		return store.Operation{}, err
	}
	if i := slices.IndexFunc(rows, func(row store.Operation) bool { return row.ID == id }); i >= 0 {
		return rows[i], nil
	}
	return store.Operation{}, ErrNotFound // deleted meanwhile
}

// same returns the other operations with the same action and target in some states, the oldest
// first.
func (s *Service) same(ctx context.Context, db bun.IDB, o Operation, states ...OperationState) (found []Operation, err error) {
	rows, err := s.store.Operations.List(
		ctx, db, store.OperationFilter{States: names(states...), Kinds: []string{string(o.Action)}, OldestFirst: true}, math.MaxInt32,
	)
	for _, row := range rows {
		if other := newOperation(row); other.ID != o.ID && other.sameAs(o) {
			found = append(found, other)
		}
	}
	return found, err
}

// wake makes this service's Runner poll at once and invalidates the overview.
func (s *Service) wake() {
	s.overview.Change()
	select {
	case s.started <- struct{}{}:
	default: // already signalled
	}
}
