package ops

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Messages shows and changes pending messages. [Session.Messages] returns it; it is safe for
// concurrent use.
type Messages struct{ access }

const (
	examined  = 2000     // messages read for a page
	headBytes = 64 << 10 // of a payload
)

// List lists pending messages without contents. next is the following page, or nil if there is
// none. A page reads at most 2,000 messages, so it may return few or none although next is not
// nil.
func (s *Messages) List(ctx context.Context, filter admin.Filter, page admin.Page) (found []admin.Message, next *admin.Page, err error) {
	page.ScanLimit = examined
	found, err = look(ctx, s.access, View, filter.Consumer, func(ctx context.Context, db bun.IDB) (found []admin.Message, err error) {
		found, next, err = s.service.admin.List(ctx, db, filter, page)
		return found, err
	})
	return found, next, err
}

// ListByID lists up to 1,000 pending messages by id, without contents. Ids that are not
// pending are left out.
func (s *Messages) ListByID(ctx context.Context, ids ...int64) ([]admin.Message, error) {
	found, err := look(ctx, s.access, View, "", func(ctx context.Context, db bun.IDB) ([]admin.Message, error) {
		return s.service.admin.ListByID(ctx, db, ids...)
	})
	for _, m := range found {
		if err := s.may(View, m.Consumer); err != nil {
			return nil, fmt.Errorf("ops: messages: %w", err)
		}
	}
	return found, err
}

// Find searches pending messages in parts and returns a cursor, which is nil at the end: see
// admin.Client.Find. A search for a header needs the right to read contents: see [ErrRedacted].
func (s *Messages) Find(
	ctx context.Context, search admin.Search, cursor admin.Cursor,
) (found []admin.Message, next *admin.Cursor, err error) {
	if err := s.maySearch(ctx, headerOf(search)); err != nil {
		return nil, nil, fmt.Errorf("ops: find: %w", err)
	}
	found, err = look(ctx, s.access, View, "", func(ctx context.Context, db bun.IDB) (found []admin.Message, err error) {
		found, next, err = s.service.admin.Find(ctx, db, search, cursor)
		return found, err
	})
	return found, next, err
}

// ListClaimed lists the messages that a claim holds now, without contents.
func (s *Messages) ListClaimed(ctx context.Context, claim int64) ([]admin.Message, error) {
	return look(ctx, s.access, View, "", func(ctx context.Context, db bun.IDB) ([]admin.Message, error) {
		return s.service.admin.ClaimMessages(ctx, db, claim)
	})
}

// Message is a pending message as the principal may see it.
type Message struct {
	admin.Message
	// Hidden is true if the payload, the headers and the error texts are not shown.
	Hidden bool `json:"hidden,omitempty"`
}

// Get returns one pending message with the first 64 KiB of its payload, or admin.ErrNotFound.
func (s *Messages) Get(ctx context.Context, id int64) (Message, error) {
	found, err := look(ctx, s.access, View, "", func(ctx context.Context, db bun.IDB) (admin.Message, error) {
		return s.service.admin.GetHead(ctx, db, id, headBytes)
	})
	if err != nil {
		return Message{}, err
	}
	if err := s.may(View, found.Consumer); err != nil {
		return Message{}, err
	}
	m := Message{Message: found}
	var c Content
	c, shown := s.shown(
		ctx,
		Content{Consumer: m.Consumer, PayloadType: m.PayloadType, Payload: m.Payload, Headers: m.Headers, Errors: texts(m.Errors)},
	)
	m.Payload, m.Headers, m.Errors, m.Hidden = c.Payload, c.Headers, withTexts(m.Errors, c.Errors), !shown
	return m, nil
}

func texts(attempts []admin.Attempt) []string {
	return store.Each(attempts, func(a admin.Attempt) string { return a.Error })
}

// withTexts replaces the texts of attempts. Missing texts become empty.
func withTexts(attempts []admin.Attempt, texts []string) []admin.Attempt {
	attempts = append([]admin.Attempt(nil), attempts...)
	for i := range attempts {
		attempts[i].Error = ""
		if i < len(texts) {
			attempts[i].Error = texts[i]
		}
	}
	return attempts
}

// Explain reports why a message does not run: see admin.Client.Explain. A principal that may not
// read contents does not see the error that opened a circuit.
func (s *Messages) Explain(ctx context.Context, id int64) (admin.Explanation, error) {
	e, err := look(ctx, s.access, View, "", func(ctx context.Context, db bun.IDB) (admin.Explanation, error) {
		return s.service.admin.Explain(ctx, db, id)
	})
	if err == nil {
		err = s.may(View, e.Message.Consumer)
	}
	if err != nil {
		return admin.Explanation{}, err
	}
	if e.CircuitError != "" {
		c, _ := s.shown(ctx, Content{Consumer: e.Message.Consumer, PayloadType: e.Message.PayloadType, Errors: []string{e.CircuitError}})
		e.CircuitError = strings.Join(c.Errors, "")
	}
	return e, nil
}

// RunNow makes pending messages due now. It accepts 1 to 500 ids; otherwise the error is
// bus.ErrInvalidOption. Use [Operations.Plan] for more.
func (s *Messages) RunNow(ctx context.Context, reason string, ids ...int64) (admin.Result, error) {
	return s.changePending(
		ctx,
		Change{Action: RunNow, Reason: reason, Target: Target{IDs: ids}},
		func(ctx context.Context, db *bun.DB) (admin.Result, error) {
			return s.service.admin.RunNow(ctx, db, ids...)
		},
	)
}

// Reschedule makes pending messages due at the given time. It accepts 1 to 500 ids; otherwise the
// error is bus.ErrInvalidOption. Use [Operations.Plan] for more.
func (s *Messages) Reschedule(ctx context.Context, reason string, at time.Time, ids ...int64) (admin.Result, error) {
	return s.changePending(
		ctx,
		Change{Action: Reschedule, Reason: reason, Target: Target{IDs: ids, At: at}},
		func(ctx context.Context, db *bun.DB) (admin.Result, error) {
			return s.service.admin.Reschedule(ctx, db, at, ids...)
		},
	)
}

// Cancel deletes pending messages for good. It accepts 1 to 500 ids; otherwise the error is
// bus.ErrInvalidOption. Use [Operations.Plan] for more.
func (s *Messages) Cancel(ctx context.Context, reason string, ids ...int64) (admin.Result, error) {
	return s.changePending(
		ctx,
		Change{Action: Cancel, Reason: reason, Target: Target{IDs: ids}},
		func(ctx context.Context, db *bun.DB) (admin.Result, error) {
			return s.service.admin.Cancel(ctx, db, ids...)
		},
	)
}

// changePending changes messages that processors may hold, which needs admin.Client's own
// transactions.
func (s *Messages) changePending(
	ctx context.Context, c Change, fn func(context.Context, *bun.DB) (admin.Result, error),
) (result admin.Result, err error) {
	err = s.changeAfter(ctx, c, func(ctx context.Context, db *bun.DB) (int, error) {
		result, err = fn(ctx, db)
		return result.Changed, err
	})
	return result, err
}
