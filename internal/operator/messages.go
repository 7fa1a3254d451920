package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Messages shows and changes pending messages. [Session.Messages] returns it; it is safe for
// concurrent use.
type Messages struct{ access *access }

const (
	examined  = 2000     // messages read for a page
	mostFound = 1000     // messages read for a page of a search for a header, all of which may match
	headBytes = 64 << 10 // of a payload
)

// List lists pending messages without contents. next is the following page, or nil if there is
// none. A page reads at most 2,000 messages, so it may return few or none although next is not
// nil.
func (s *Messages) List(ctx context.Context, filter admin.Filter, page admin.Page) (found []admin.Message, next *admin.Page, err error) {
	page.ScanLimit = examined
	found, err = look(ctx, s.access, ops.View, filter.Consumer, func(ctx context.Context, db bun.IDB) (found []admin.Message, err error) {
		found, next, err = s.access.Admin.List(ctx, db, filter, page)
		return found, err
	})
	return found, next, err
}

// ListByID lists up to 1,000 pending messages by id, without contents. Ids that are not
// pending are left out.
func (s *Messages) ListByID(ctx context.Context, ids ...int64) ([]admin.Message, error) {
	found, err := look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) ([]admin.Message, error) {
		return s.access.Pending.ListByID(ctx, db, ids...)
	})
	for _, m := range found {
		if err := s.access.May(ops.View, m.Consumer); err != nil {
			return nil, fmt.Errorf("ops: messages: %w", err)
		}
	}
	return found, err
}

// Find searches pending messages in parts and returns a cursor, which is nil at the end: see
// admin.Client.Find. A search for a header needs the right to read contents: see [ops.ErrRedacted].
// It does not return messages of consumers and payload types whose header is hidden. The cursor's
// Examined can show that a thousand of them match.
func (s *Messages) Find(
	ctx context.Context, search admin.Search, cursor admin.Cursor,
) (found []admin.Message, next *admin.Cursor, err error) {
	var headers map[string]string
	if search.Header != "" {
		headers = map[string]string{search.Header: search.Value}
	}
	if err := s.access.MaySearch(ctx, poison.Filter{}, headers); err != nil {
		return nil, nil, fmt.Errorf("ops: find: %w", err)
	}
	found, err = look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) (found []admin.Message, err error) {
		found, next, err = s.access.Admin.Find(ctx, db, search, cursor)
		return found, err
	})
	return slices.DeleteFunc(found, hidesHeaders(ctx, s.access, headers, func(m admin.Message) (string, string) {
		return m.Consumer, m.PayloadType
	})), next, err
}

// hidesHeaders returns a function that reports whether the searched headers are hidden in a message of its consumer and payload
// type. Such a message is left out, because finding it would reveal them.
func hidesHeaders[M any](
	ctx context.Context, s *access, headers map[string]string, kind func(M) (consumer, payloadType string),
) func(M) bool {
	hidden := make(map[[2]string]bool)
	return func(m M) bool {
		consumer, payloadType := kind(m)
		key := [2]string{consumer, payloadType}
		if _, asked := hidden[key]; !asked && len(headers) > 0 {
			hidden[key] = s.MaySearch(ctx, poison.Filter{Consumer: consumer, PayloadType: payloadType}, headers) != nil
		}
		return hidden[key]
	}
}

// ListClaimed lists the messages that a claim holds now, without contents.
func (s *Messages) ListClaimed(ctx context.Context, claim int64) ([]admin.Message, error) {
	return look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) ([]admin.Message, error) {
		return s.access.Pending.ListClaimed(ctx, db, claim)
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
	found, err := look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) (admin.Message, error) {
		return s.access.Pending.Head(ctx, db, id, headBytes)
	})
	if err != nil {
		return Message{}, err
	}
	if err := s.access.May(ops.View, found.Consumer); err != nil {
		return Message{}, err
	}
	m := Message{Message: found}
	c, shown := s.access.Shown(ctx, content(m.Consumer, m.PayloadType, m.Payload, m.Headers, m.Errors))
	m.Payload, m.Headers, m.Errors, m.Hidden = c.Payload, c.Headers, withTexts(m.Errors, c.Errors), !shown
	return m, nil
}

func content(consumer, payloadType string, payload []byte, headers map[string]string, attempts []admin.Attempt) ops.Content {
	texts := store.Each(attempts, func(a admin.Attempt) string { return a.Error })
	return ops.Content{Consumer: consumer, PayloadType: payloadType, Payload: payload, Headers: headers, Errors: texts}
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
	e, err := look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) (admin.Explanation, error) {
		return s.access.Admin.Explain(ctx, db, id)
	})
	if err == nil {
		err = s.access.May(ops.View, e.Message.Consumer)
	}
	if err != nil {
		return admin.Explanation{}, err
	}
	if e.CircuitError != "" {
		e.CircuitError = s.access.Text(ctx, ops.Content{Consumer: e.Message.Consumer, PayloadType: e.Message.PayloadType}, e.CircuitError)
	}
	return e, nil
}

// RunNow makes pending messages due now. It accepts 1 to 500 ids; otherwise the error is
// bus.ErrInvalidOption. Use [ops.Operations.Plan] for more.
func (s *Messages) RunNow(ctx context.Context, reason string, ids ...int64) (admin.Result, error) {
	change := ops.Change{Action: ops.RunNow, Reason: reason, Target: ops.Target{IDs: ids}}
	return s.changePending(ctx, change, func(ctx context.Context, db *bun.DB, ids []int64) (admin.Result, error) {
		return s.access.Admin.RunNow(ctx, db, ids...)
	})
}

// Reschedule makes pending messages due at the given time. It accepts 1 to 500 ids; otherwise the
// error is bus.ErrInvalidOption. Use [ops.Operations.Plan] for more.
func (s *Messages) Reschedule(ctx context.Context, reason string, at time.Time, ids ...int64) (admin.Result, error) {
	change := ops.Change{Action: ops.Reschedule, Reason: reason, Target: ops.Target{IDs: ids, At: at}}
	return s.changePending(ctx, change, func(ctx context.Context, db *bun.DB, ids []int64) (admin.Result, error) {
		return s.access.Admin.Reschedule(ctx, db, at, ids...)
	})
}

// Cancel deletes pending messages for good. It accepts 1 to 500 ids; otherwise the error is
// bus.ErrInvalidOption. Use [ops.Operations.Plan] for more.
func (s *Messages) Cancel(ctx context.Context, reason string, ids ...int64) (admin.Result, error) {
	change := ops.Change{Action: ops.Cancel, Reason: reason, Target: ops.Target{IDs: ids}}
	return s.changePending(ctx, change, func(ctx context.Context, db *bun.DB, ids []int64) (admin.Result, error) {
		return s.access.Admin.Cancel(ctx, db, ids...)
	})
}

// changePending changes messages that processors may hold, which needs admin.Client's own
// transactions.
func (s *Messages) changePending(
	ctx context.Context, c ops.Change, fn func(context.Context, *bun.DB, []int64) (admin.Result, error),
) (result admin.Result, err error) {
	err = s.access.ChangeAfter(ctx, c, func(ctx context.Context, db *bun.DB, ids []int64) (int, error) {
		result, err = fn(ctx, db, ids)
		for _, id := range c.Target.IDs {
			if !slices.Contains(ids, id) && !slices.Contains(result.Missing, id) {
				result.Missing = append(result.Missing, id)
			}
		}
		slices.Sort(result.Missing)
		return result.Changed, err
	})
	return result, err
}
