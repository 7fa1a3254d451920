package storetest

import (
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// null stands for NULL in what the suite reads.
const null = "<null>"

// row is a message as it is stored.
type row struct {
	ID                                      int64
	MessageID                               uuid.UUID
	Consumer, PayloadType, Payload, Headers string
	InsertID                                string
	Created, Available                      string // spans
	Attempts, Crashes                       int
	Errors                                  string
	Poisoned, Reason                        string // of poisoned messages
}

// stored is the same as the database returns it.
type stored struct {
	ID             int64          `bun:"id"`
	MessageID      uuid.UUID      `bun:"message_id"`
	ConsumerType   string         `bun:"consumer_type"`
	PayloadType    string         `bun:"payload_type"`
	Payload        string         `bun:"payload"`
	Headers        sql.NullString `bun:"headers"`
	InsertID       sql.NullString `bun:"insert_id"`
	CreatedAt      store.Moment   `bun:"created_at"`
	AvailableAfter store.Moment   `bun:"available_after"`
	Attempts       int            `bun:"attempts"`
	Crashes        int            `bun:"crashes"`
	Errors         sql.NullString `bun:"errors"`
	PoisonedAt     store.Moment   `bun:"poisoned_at"`
	Reason         string         `bun:"reason"`
}

const storedColumns = "id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, " +
	"attempts, crashes, errors"

// table names one of the store's tables.
func (k *kit) table(name string) bun.Ident {
	name = k.tables.Prefix + name
	if k.tables.Schema != "" {
		name = k.tables.Schema + "." + name
	}
	return bun.Ident(name)
}

// messages reads what is pending, in the order of ids.
func (k *kit) messages() []row {
	k.Helper()
	return k.rows("SELECT "+storedColumns+" FROM ? ORDER BY id", k.table("consumer_messages"))
}

// poisoned reads what is poisoned, in the order of ids.
func (k *kit) poisoned() []row {
	k.Helper()
	return k.rows("SELECT "+storedColumns+", poisoned_at, reason FROM ? ORDER BY id", k.table("poisoned_messages"))
}

func (k *kit) rows(query string, table bun.Ident) []row {
	k.Helper()
	var found []stored
	k.must("read "+string(table), k.db.NewRaw(query, table).Scan(k.ctx, &found))
	rows := make([]row, len(found))
	for i, s := range found {
		rows[i] = row{
			ID: s.ID, MessageID: s.MessageID, Consumer: s.ConsumerType, PayloadType: s.PayloadType, Payload: s.Payload,
			Headers: text(s.Headers), InsertID: text(s.InsertID), Created: span(s.CreatedAt.Time), Available: span(s.AvailableAfter.Time),
			Attempts: s.Attempts, Crashes: s.Crashes, Errors: text(s.Errors), Poisoned: span(s.PoisonedAt.Time), Reason: s.Reason,
		}
	}
	return rows
}

func text(s sql.NullString) string {
	if !s.Valid {
		return null
	}
	return s.String
}

// row reads one pending message.
func (k *kit) row(id int64) row {
	k.Helper()
	for _, m := range k.messages() {
		if m.ID == id {
			return m
		}
	}
	k.Fatalf("message %d: got none, want it to be pending", id)
	return row{}
}

// pending lists the ids of pending messages.
func (k *kit) pending() []int64 {
	k.Helper()
	var ids []int64
	for _, m := range k.messages() {
		ids = append(ids, m.ID)
	}
	return ids
}

// claimRow is a claim as it is stored.
type claimRow struct {
	ID                int64
	Owner             string
	Solo              bool
	Claimed, LeasedTo string // spans
	Messages          string // ids in order, with spaces between
}

// claims reads all claims, in the order of ids.
func (k *kit) claims() []claimRow {
	k.Helper()
	var found []struct {
		ID          int64        `bun:"id"`
		Owner       string       `bun:"owner"`
		Solo        bool         `bun:"solo"`
		ClaimedAt   store.Moment `bun:"claimed_at"`
		LeasedUntil store.Moment `bun:"leased_until"`
		MessageIDs  string       `bun:"message_ids"`
	}
	err := k.db.NewRaw("SELECT id, owner, solo, claimed_at, leased_until, message_ids FROM ? ORDER BY id", k.table("message_claims")).
		Scan(k.ctx, &found)
	k.must("read claims", err)
	claims := make([]claimRow, len(found))
	for i, c := range found {
		claims[i] = claimRow{ID: c.ID, Owner: c.Owner, Solo: c.Solo, Claimed: span(c.ClaimedAt.Time), LeasedTo: span(c.LeasedUntil.Time)}
		var ids []int64
		for id := range strings.SplitSeq(strings.Trim(c.MessageIDs, "{}[]"), ",") { // an array, or JSON
			n, err := strconv.ParseInt(strings.TrimSpace(id), 10, 64)
			k.must("read the messages of a claim", err)
			ids = append(ids, n)
		}
		slices.Sort(ids)
		claims[i].Messages = list(ids...)
	}
	return claims
}

// list writes ids like claimRow.Messages.
func list(ids ...int64) string { return strings.Trim(fmt.Sprint(ids), "[]") }
