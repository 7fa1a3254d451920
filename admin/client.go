package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/paging"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// ErrNotFound is returned when no pending message has the id. The message was consumed, cancelled
// or poisoned, or never existed.
var ErrNotFound = errors.New("no such pending message")

// Client lists pending messages, explains why one does not run, cancels and reschedules messages,
// and pauses consumers. For poisoned messages use poison.Store.
//
// It holds no database, starts no goroutine, and is safe for concurrent use. Make one with
// [NewClient]: methods of the zero value return an error. Names of consumers and payload types are
// those stored with the messages. A message stored under a former name (bus.Aliases,
// bus.PayloadAliases) is found by that name only.
//
// Given a transaction, its methods work in it. Given a *bun.DB or bun.Conn, methods that change
// data use their own transactions. Cancel, Reschedule and RunNow refuse a transaction
// (bus.ErrInvalidOption) on MariaDB, and on PostgreSQL for messages with keys: it would block their
// consumers. On SQLite they accept one. With the context of outbox.Producer.RunInTx, or of a
// transactional consumer, methods that change data need that transaction as db: see
// outbox.ErrNotInTx.
//
// All methods return outbox.ErrSchemaOutdated when the tables are missing or too old. They return
// database errors wrapped.
type Client struct {
	registry *bus.Registry
	stores   store.Stores
}

var errNotMade = errors.New("the client was not made by NewClient; under fx use it from OnStart on")

// NewClient makes a client for the registry's tables. The registry's consumers decide whether a
// message has a consumer. The only error is for a nil registry.
func NewClient(registry *bus.Registry) (*Client, error) {
	if registry == nil {
		return nil, errors.New("admin: NewClient: the registry is nil")
	}
	return &Client{registry: registry, stores: store.All(registry)}, nil
}

// List returns a page of pending messages, without payloads, headers and errors, and the next page,
// which is nil after the last one. Messages are sorted by consumer, payload type and due time. Pass
// the same filter with each page. A message that is rescheduled or retried between two pages may be
// listed twice or not at all.
//
// A filter by consumer or insert id uses an index. All other fields are compared message by
// message. A rare match then reads all messages of the consumer, or the whole table without a
// consumer, unless [Page.ScanLimit] bounds the scan.
func (c *Client) List(ctx context.Context, db bun.IDB, filter Filter, page Page) ([]Message, *Page, error) {
	size, place, mistake := paging.Start(page.Size, page.After)
	st, db, err := c.stores.Of(db, errNotMade)
	if err = errors.Join(mistake, page.check(place), filter.check(), err); err != nil {
		return nil, nil, dberr.Wrap(err, "admin: list")
	}
	f := filter.rows()
	if page.After != "" {
		f.After = store.PendingPlace{
			Consumer: place.Consumer, Payload: place.Payload, At: place.At(), ID: place.ID, Keyed: place.Keyed, Lane: place.Lane,
			Rank: place.Rank,
		}
	}
	var found store.Examined
	if page.ScanLimit > 0 && filter.InsertID == "" {
		found, err = st.Pending.Examine(ctx, db, f, page.ScanLimit, size)
	} else {
		found.Rows, err = st.Pending.List(ctx, db, f, size+1)
	}
	if err != nil {
		return nil, nil, dberr.Wrap(err, "admin: list")
	}
	rows := found.Rows
	if len(rows) > size {
		rows = rows[:size]
		last := rows[size-1]
		found.Next, found.More = store.PendingPlace{
			Consumer: last.ConsumerType, Payload: last.PayloadType, At: last.AvailableAfter.Time, ID: last.ID,
		}, true
	}
	var next *Page
	if p := found.Next; found.More {
		next = &Page{Size: size, ScanLimit: page.ScanLimit, After: paging.After(paging.Place{
			Consumer: p.Consumer, Payload: p.Payload, Micros: p.At.UnixMicro(), ID: p.ID, Keyed: p.Keyed, Lane: p.Lane, Rank: p.Rank})}
	}
	return store.Each(rows, newMessage), next, nil
}

// Count returns the number of pending messages that match. It reads every message it counts, and
// the whole table without a consumer in the filter. On a large table use [Client.Queues], whose
// counts are bounded.
func (c *Client) Count(ctx context.Context, db bun.IDB, filter Filter) (int, error) {
	st, db, err := c.stores.Of(db, errNotMade)
	if err = errors.Join(err, filter.check()); err != nil {
		return 0, dberr.Wrap(err, "admin: count")
	}
	n, err := st.Pending.Count(ctx, db, filter.rows())
	return n, dberr.Wrap(err, "admin: count")
}

// Get returns one pending message with its payload, headers and errors, or
// [ErrNotFound].
func (c *Client) Get(ctx context.Context, db bun.IDB, id int64) (Message, error) {
	st, db, err := c.stores.Of(db, errNotMade)
	if err != nil {
		return Message{}, dberr.Wrap(err, "admin: get %d", id)
	}
	row, found, err := st.Pending.Get(ctx, db, id, true)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return Message{}, dberr.Wrap(err, "admin: get %d", id)
	}
	return newMessage(row), nil
}

// Explain returns why a message does not run yet, judged from the database and the registry. With a
// registry without consumers it relies on the reports of other processes alone. It returns
// [ErrNotFound] when no pending or poisoned message has the id.
//
// Explain takes no locks, so it cannot see that another transaction has locked the row and claims
// skip it: [Client.RunNow] reports that.
func (c *Client) Explain(ctx context.Context, db bun.IDB, id int64) (Explanation, error) {
	st, db, err := c.stores.Of(db, errNotMade)
	if err != nil {
		return Explanation{}, dberr.Wrap(err, "admin: explain %d", id)
	}
	row, found, err := st.Pending.Get(ctx, db, id, false)
	if err != nil {
		return Explanation{}, dberr.Wrap(err, "admin: explain %d", id)
	}
	if found {
		x := newExplainer(c, db, st, row)
		if err := x.explain(ctx); err != nil {
			return Explanation{}, dberr.Wrap(err, "admin: explain %d", id)
		}
		return x.e, nil
	}
	poisoned, err := st.Poison.List(ctx, db, store.PoisonFilter{IDs: []int64{id}}, 1)
	if err == nil && len(poisoned) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Explanation{}, dberr.Wrap(err, "admin: explain %d", id)
	}
	return explainPoisoned(poisoned[0]), nil
}

// Consumed returns a page of consumed messages, newest first, and the next page, which is nil after the
// last one. Only consumers with bus.Keep keep messages. Pass the same filter with each page.
//
// [Page.ScanLimit] bounds how many messages are compared for a page with the fields that have no index.
// A page may then be short or empty although there is a next one.
func (c *Client) Consumed(ctx context.Context, db bun.IDB, filter ConsumedFilter, page Page) ([]ConsumedMessage, *Page, error) {
	size, place, mistake := paging.Start(page.Size, page.After)
	st, db, err := c.stores.Of(db, errNotMade)
	f, wrong := filter.rows()
	if err = errors.Join(mistake, page.check(paging.Place{}), wrong, err); err != nil {
		return nil, nil, dberr.Wrap(err, "admin: consumed")
	}
	if page.After != "" {
		f.BeforeAt, f.BeforeID = place.At(), place.ID
	}
	found, err := st.Consumed.List(ctx, db, f, size, page.ScanLimit, !page.Brief)
	if err != nil {
		return nil, nil, dberr.Wrap(err, "admin: consumed")
	}
	var next *Page
	if found.More {
		next = &Page{Size: size, ScanLimit: page.ScanLimit, Brief: page.Brief,
			After: paging.After(paging.Place{Micros: found.At.UnixMicro(), ID: found.ID})}
	}
	return store.Each(found.Rows, newConsumed), next, nil
}

// operates reports whether the registry has no consumers. Such a program only operates: the reports
// of other processes decide.
func (c *Client) operates() bool { return len(c.registry.Consumers()) == 0 }

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
func (c *Client) Find(ctx context.Context, db bun.IDB, search Search, cursor Cursor) ([]Message, *Cursor, error) {
	st, db, err := c.stores.Of(db, errNotMade)
	var rows store.PendingSearch
	if err == nil {
		rows, err = search.rows()
	}
	var at store.FindPlace
	if err == nil {
		at, err = cursor.read()
	}
	if err == nil && cursor.After == "" {
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
		next = &Cursor{After: base64.RawURLEncoding.EncodeToString(text), Examined: cursor.Examined + int64(looked)}
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
		return rows, fmt.Errorf("%w: a header value without a header name", bus.ErrInvalidOption)
	}
	if s.TraceID != "" {
		part := store.TraceHeader(s.TraceID)
		if part == "" {
			return rows, fmt.Errorf("trace id %q: %w: 32 hexadecimal digits are allowed", s.TraceID, bus.ErrInvalidOption)
		}
		rows.Headers = append(rows.Headers, part)
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
		return at, fmt.Errorf("cursor %q: %w: only a cursor that Find returned is allowed", p.After, bus.ErrInvalidOption)
	}
	return at, nil
}
