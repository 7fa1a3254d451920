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

const (
	examined  = 2000     // messages of a page, whether they match or not
	headBytes = 64 << 10 // of a payload
)

// Messages lists pending messages, without contents, and the page after it, which is nil when there is
// none. It reads 2,000 messages at most: where few of them match, a page has few, or none, and the next
// goes on.
func (s *Session) Messages(ctx context.Context, filter admin.Filter, page admin.Page) (found []admin.Message, next *admin.Page, err error) {
	page.ScanLimit = examined
	found, err = look(ctx, s, View, filter.Consumer, func(ctx context.Context, db bun.IDB) (found []admin.Message, err error) {
		found, next, err = s.service.admin.List(ctx, db, filter, page)
		return found, err
	})
	return found, next, err
}

// MessagesByID lists up to 1,000 pending messages by their ids, without contents. Those that are not there are left out.
func (s *Session) MessagesByID(ctx context.Context, ids ...int64) ([]admin.Message, error) {
	found, err := look(ctx, s, View, "", func(ctx context.Context, db bun.IDB) ([]admin.Message, error) {
		return s.service.admin.ListByID(ctx, db, ids...)
	})
	for _, m := range found {
		if err := s.may(View, m.Consumer); err != nil {
			return nil, fmt.Errorf("ops: messages: %w", err)
		}
	}
	return found, err
}

// Find looks for pending messages, a part of them at a time, and returns how far it has come, which is nil
// at the end: see admin.Client.Find. To look for a header takes the right to read contents, and see
// [ErrRedacted].
func (s *Session) Find(ctx context.Context, search admin.Search, place admin.Cursor) (found []admin.Message, next *admin.Cursor, err error) {
	if err := s.maySearch(ctx, headerOf(search)); err != nil {
		return nil, nil, fmt.Errorf("ops: find: %w", err)
	}
	found, err = look(ctx, s, View, "", func(ctx context.Context, db bun.IDB) (found []admin.Message, err error) {
		found, next, err = s.service.admin.Find(ctx, db, search, place)
		return found, err
	})
	return found, next, err
}

// ClaimMessages lists the messages that a claim holds now, without contents.
func (s *Session) ClaimMessages(ctx context.Context, claim int64) ([]admin.Message, error) {
	return look(ctx, s, View, "", func(ctx context.Context, db bun.IDB) ([]admin.Message, error) {
		return s.service.admin.ClaimMessages(ctx, db, claim)
	})
}

// Message is a pending message as a person sees it.
type Message struct {
	admin.Message
	// Hidden is true where the payload, the headers and the texts of errors are not shown.
	Hidden bool `json:"hidden,omitempty"`
}

// Message returns one pending message with the first 64 KiB of its payload, or admin.ErrNotFound.
func (s *Session) Message(ctx context.Context, id int64) (Message, error) {
	found, err := look(ctx, s, View, "", func(ctx context.Context, db bun.IDB) (admin.Message, error) {
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
	c, shown := s.shown(ctx, Content{Consumer: m.Consumer, PayloadType: m.PayloadType, Payload: m.Payload, Headers: m.Headers, Errors: texts(m.Errors)})
	m.Payload, m.Headers, m.Errors, m.Hidden = c.Payload, c.Headers, withTexts(m.Errors, c.Errors), !shown
	return m, nil
}

func texts(attempts []admin.Attempt) []string {
	return store.Each(attempts, func(a admin.Attempt) string { return a.Error })
}

// withTexts are the attempts with other texts: without any where there are none.
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

// Explain says why a message does not run: see admin.Client.Explain. A principal that may not read
// contents does not see the error with which a circuit was tripped.
func (s *Session) Explain(ctx context.Context, id int64) (admin.Explanation, error) {
	e, err := look(ctx, s, View, "", func(ctx context.Context, db bun.IDB) (admin.Explanation, error) {
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

// RunMessages makes pending messages due now.
func (s *Session) RunMessages(ctx context.Context, reason string, ids ...int64) (admin.Result, error) {
	return s.changePending(ctx, Change{Action: RunNow, Reason: reason, Target: Target{IDs: ids}}, func(ctx context.Context, db *bun.DB) (admin.Result, error) {
		return s.service.admin.RunNow(ctx, db, ids...)
	})
}

// Reschedule makes pending messages due at the given time.
func (s *Session) Reschedule(ctx context.Context, reason string, at time.Time, ids ...int64) (admin.Result, error) {
	return s.changePending(ctx, Change{Action: Reschedule, Reason: reason, Target: Target{IDs: ids, At: at}}, func(ctx context.Context, db *bun.DB) (admin.Result, error) {
		return s.service.admin.Reschedule(ctx, db, at, ids...)
	})
}

// Cancel deletes pending messages for good.
func (s *Session) Cancel(ctx context.Context, reason string, ids ...int64) (admin.Result, error) {
	return s.changePending(ctx, Change{Action: Cancel, Reason: reason, Target: Target{IDs: ids}}, func(ctx context.Context, db *bun.DB) (admin.Result, error) {
		return s.service.admin.Cancel(ctx, db, ids...)
	})
}

// changePending changes messages that their consumers may hold, which takes transactions of admin.Client's own.
func (s *Session) changePending(ctx context.Context, c Change, fn func(context.Context, *bun.DB) (admin.Result, error)) (result admin.Result, err error) {
	err = s.changeAfter(ctx, c, func(ctx context.Context, db *bun.DB) (int, error) {
		result, err = fn(ctx, db)
		return result.Changed, err
	})
	return result, err
}
