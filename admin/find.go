package admin

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Search is what [Client.Find] looks for. At least one field must be set, and all that are set must
// match.
type Search struct {
	// MessageID is the payload's message id, as in logs, traces and receipts.
	MessageID uuid.UUID
	// TraceID is the trace in which the message was produced: 32 hexadecimal digits.
	TraceID string
	// Header is the name of a header, and Value its required value.
	Header, Value string
}

// Cursor is a position in the scan of [Client.Find]. The zero value is the beginning.
type Cursor struct {
	// After is the position that Find returned, or empty for the beginning. It may be stored, for
	// example in a link.
	After string `json:"after"`
	// Examined is the number of messages scanned so far.
	Examined int64 `json:"examined"`
}

// Find searches pending messages by fields without an index. Each call scans 50,000 messages and
// returns at most 1000 matches, as [Client.List] does, and the next position, which is nil at the
// end. A message id with a time (UUID version 7, the producers' default) is searched around that
// time first, then before and after in turn. Any other search begins with the newest message.
// Messages that are produced meanwhile may be missed.
//
// An empty search, a malformed trace id and an unknown position are bus.ErrInvalidOption.
func (a *Client) Find(ctx context.Context, db bun.IDB, search Search, place Cursor) ([]Message, *Cursor, error) {
	st, db, err := a.stores.Of(db, errNotMade)
	var rows store.PendingSearch
	if err == nil {
		rows, err = search.rows()
	}
	var at store.FindPlace
	if err == nil {
		at, err = place.read()
	}
	if err == nil && place.After == "" {
		var around time.Time
		if search.MessageID.Version() == 7 {
			around = time.Unix(search.MessageID.Time().UnixTime())
		}
		at, err = st.Pending.FindStart(ctx, db, around)
	}
	if err != nil {
		return nil, nil, dberr.Wrap(err, "admin: find")
	}
	var found []store.Pending
	looked := 0
	for looked == 0 && !(at.Most && at.End) { // there may be nothing on one side
		if found, looked, at, err = st.Pending.Find(ctx, db, rows, at); err != nil {
			return nil, nil, dberr.Wrap(err, "admin: find")
		}
	}
	var next *Cursor
	if !at.Most || !at.End {
		text, err := json.Marshal(at)
		if err != nil {
			return nil, nil, fmt.Errorf("admin: find: %w", err)
		}
		next = &Cursor{After: base64.RawURLEncoding.EncodeToString(text), Examined: place.Examined + int64(looked)}
	}
	return store.Each(found, newMessage), next, nil
}

// rows translates the search into stored form. In headers as JSON no value can look like another
// header.
func (s Search) rows() (rows store.PendingSearch, err error) {
	rows.MessageID = s.MessageID
	if s == (Search{}) {
		return rows, fmt.Errorf("%w: a message id, a trace id or a header is needed", bus.ErrInvalidOption)
	}
	if s.Header == "" && s.Value != "" {
		return rows, fmt.Errorf("%w: a value without the name of its header", bus.ErrInvalidOption)
	}
	if s.TraceID != "" {
		if id, err := hex.DecodeString(s.TraceID); err != nil || len(id) != 16 {
			return rows, fmt.Errorf("trace id %q: %w: 32 hexadecimal digits are allowed", s.TraceID, bus.ErrInvalidOption)
		}
		rows.Headers = append(rows.Headers, `"traceparent":"00-`+strings.ToLower(s.TraceID)+"-")
	}
	if s.Header != "" {
		if err := limits.CheckHeaders(map[string]string{s.Header: s.Value}); err != nil {
			return rows, err
		}
		text, err := json.Marshal(map[string]string{s.Header: s.Value})
		if err != nil {
			return rows, err
		}
		rows.Headers = append(rows.Headers, string(text[1:len(text)-1]))
	}
	return rows, nil
}

func (p Cursor) read() (at store.FindPlace, err error) {
	if p.After == "" {
		return at, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(p.After)
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil || at == (store.FindPlace{}) || at.Most && at.End {
		return at, fmt.Errorf("place %q: %w: only what Find returned is allowed", p.After, bus.ErrInvalidOption)
	}
	return at, nil
}
