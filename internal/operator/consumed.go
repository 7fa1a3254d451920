package operator

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/paging"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Consumed shows and repeats consumed messages. [Session.Consumed] returns it; it is safe for concurrent
// use.
type Consumed struct{ access *access }

// Consumed returns what the principal may do with consumed messages.
func (s *Session) Consumed() *Consumed { return &Consumed{s.access} }

// List lists consumed messages without contents, the newest first. next is the following page, or nil if
// there is none: see admin.Client.Consumed. A page may be short although next is not nil. A filter by a
// header needs the right to read contents: see [ops.ErrRedacted]. It leaves out messages of consumers and payload
// types whose header is hidden.
func (s *Consumed) List(
	ctx context.Context, filter admin.ConsumedFilter, page admin.Page,
) (found []admin.ConsumedMessage, next *admin.Page, err error) {
	var headers map[string]string
	if filter.Header != "" {
		headers = map[string]string{filter.Header: filter.Value}
	}
	about := poison.Filter{Consumer: filter.Consumer, PayloadType: filter.PayloadType}
	if err := s.access.MaySearch(ctx, about, headers); err != nil {
		return nil, nil, fmt.Errorf("ops: consumed messages: %w", err)
	}
	size, _, err := paging.Start(page.Size, page.After)
	if err != nil {
		return nil, nil, fmt.Errorf("ops: consumed messages: %w", err)
	}
	page.Brief, page.ScanLimit = true, examined
	if len(headers) > 0 { // otherwise the end of a page that is full would reveal hidden messages that match
		page.Size, page.ScanLimit = mostFound, mostFound
	}
	found, err = look(ctx, s.access, ops.View, filter.Consumer,
		func(ctx context.Context, db bun.IDB) (found []admin.ConsumedMessage, err error) {
			found, next, err = s.access.Admin.Consumed(ctx, db, filter, page)
			return found, err
		})
	found = slices.DeleteFunc(found, hidesHeaders(ctx, s.access, headers, func(m admin.ConsumedMessage) (string, string) {
		return m.Consumer, m.PayloadType
	}))
	if next != nil {
		next.Size = size
	}
	if len(found) > size {
		found = found[:size]
		last := paging.Place{Micros: found[size-1].FinishedAt.UnixMicro(), ID: found[size-1].ID}
		next = &admin.Page{Size: size, Brief: true, After: paging.After(last)}
	}
	for i, m := range found {
		found[i].Reason = s.reason(ctx, m)
	}
	return found, next, err
}

// ConsumedMessage is a consumed message as the principal may see it.
type ConsumedMessage struct {
	admin.ConsumedMessage
	// PayloadBytes is the size of the whole payload.
	PayloadBytes int `json:"payload_bytes,omitempty"`
	// Hidden is true if the payload, the headers and the reason are not shown.
	Hidden bool `json:"hidden,omitempty"`
}

// Get returns one consumed message with the first 64 KiB of its payload, or admin.ErrNotFound.
func (s *Consumed) Get(ctx context.Context, id int64) (ConsumedMessage, error) {
	found, err := look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) ([]admin.ConsumedMessage, error) {
		found, _, err := s.access.Admin.Consumed(ctx, db, admin.ConsumedFilter{IDs: []int64{id}}, admin.Page{Size: 1})
		return found, err
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("consumed message %d: %w", id, admin.ErrNotFound)
	}
	if err == nil {
		err = s.access.May(ops.View, found[0].Consumer)
	}
	if err != nil {
		return ConsumedMessage{}, err
	}
	m := found[0]
	c, shown := s.access.Shown(ctx, content(m.Consumer, m.PayloadType, m.Payload, m.Headers, nil))
	size := len(m.Payload)
	m.Payload, m.Headers, m.Reason = errorlog.Cut(c.Payload, headBytes), c.Headers, s.reason(ctx, m)
	return ConsumedMessage{ConsumedMessage: m, PayloadBytes: size, Hidden: !shown}, nil
}

// ListByID lists up to 1,000 consumed messages by id, without contents. Those that are not kept are left
// out.
func (s *Consumed) ListByID(ctx context.Context, ids ...int64) ([]admin.ConsumedMessage, error) {
	all, err := look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) ([]admin.ConsumedMessage, error) {
		found, _, err := s.access.Admin.Consumed(ctx, db, admin.ConsumedFilter{IDs: ids}, admin.Page{Size: len(ids), Brief: true})
		return found, err
	})
	for i, m := range all {
		if err := s.access.May(ops.View, m.Consumer); err != nil {
			return nil, err
		}
		all[i].Reason = s.reason(ctx, m)
	}
	return all, err
}

// reason redacts why a message was discarded.
func (s *Consumed) reason(ctx context.Context, m admin.ConsumedMessage) string {
	if m.Reason == "" {
		return ""
	}
	return s.access.Text(ctx, ops.Content{Consumer: m.Consumer, PayloadType: m.PayloadType}, m.Reason)
}

// Repeat produces consumed messages again and returns their new message ids: see admin.Client.Repeat. It
// accepts 1 to 500 ids; otherwise the error is bus.ErrInvalidOption.
func (s *Consumed) Repeat(ctx context.Context, reason string, ids ...int64) (repeated []uuid.UUID, err error) {
	change := ops.Change{Action: ops.Repeat, Reason: reason, Target: ops.Target{IDs: ids}}
	err = s.access.Change(ctx, change, func(ctx context.Context, tx bun.Tx, ours []int64) (int, error) {
		if slices.ContainsFunc(ids, func(id int64) bool { return !slices.Contains(ours, id) }) { // all or none
			return 0, admin.ErrNotFound
		}
		repeated, err = s.access.Admin.Repeat(ctx, tx, ours...)
		return len(repeated), err
	})
	if err != nil {
		return nil, err
	}
	return repeated, nil
}
