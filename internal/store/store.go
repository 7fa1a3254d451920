package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	bundialect "github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/mariadb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/postgres"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/sqlite"
)

// Store runs the library's statements against one kind of database: it has a store for each
// subject. It holds no connection: every call is given one. It is safe for concurrent use.
type Store struct {
	dialect.Direct
	*tables

	Schema     *SchemaStore
	Outbox     *OutboxStore
	Groups     *GroupStore
	Claims     *ClaimStore
	Steps      *StepStore
	Pending    *PendingStore
	Poison     *PoisonStore
	Consumed   *ConsumedStore
	Keys       *KeyStore
	Flow       *FlowStore
	Schedules  *ScheduleStore
	EventLog   *EventStore
	Readers    *ReaderStore
	Inbox      *InboxStore
	Operations *OperationStore
	Reports    *ReportStore
}

// The stores of the subjects.
type (
	// SchemaStore migrates and checks the tables.
	SchemaStore struct{ *tables }
	// OutboxStore inserts messages.
	OutboxStore struct{ *tables }
	// GroupStore has the groups of messages that have a payload to produce once all are done.
	GroupStore struct {
		*tables
		outbox *OutboxStore
	}
	// ClaimStore claims messages, keeps their leases, and settles them.
	ClaimStore struct {
		*tables
		outbox     *OutboxStore
		operations *OperationStore
	}
	// StepStore has the durable steps of claimed messages.
	StepStore struct{ *tables }
	// PendingStore lists, counts and changes pending messages.
	PendingStore struct{ *tables }
	// PoisonStore lists, counts, requeues and deletes poisoned messages.
	PoisonStore struct {
		*tables
		outbox *OutboxStore
	}
	// ConsumedStore has the consumed messages of consumers that keep them.
	ConsumedStore struct {
		*tables
		outbox *OutboxStore
	}
	// KeyStore lists blocked keys.
	KeyStore struct{ *tables }
	// FlowStore has what keeps messages from starting: pauses, circuit breakers, limits and rates.
	FlowStore struct{ *tables }
	// ScheduleStore has the schedules and their fires.
	ScheduleStore struct{ *tables }
	// EventStore appends, reads and erases events, and has the snapshots of streams.
	EventStore struct{ *tables }
	// ReaderStore has the checkpoints and leases of readers of the event log.
	ReaderStore struct{ *tables }
	// InboxStore has the records that receivers have accepted.
	InboxStore struct{ *tables }
	// OperationStore has the operations of operators, their audit, and requests to stop a message.
	OperationStore struct {
		*tables
		pending *PendingStore
	}
	// ReportStore has what processes report, and counts what waits.
	ReportStore struct{ *tables }
)

func newStore(d dialect.Dialect) *Store {
	t := &tables{d, d.Tables()}
	s := &Store{
		Direct: d, tables: t, Schema: &SchemaStore{t}, Outbox: &OutboxStore{t}, Steps: &StepStore{t}, Pending: &PendingStore{t},
		Keys: &KeyStore{t}, Flow: &FlowStore{t}, Schedules: &ScheduleStore{t}, EventLog: &EventStore{t}, Readers: &ReaderStore{t},
		Inbox: &InboxStore{t}, Reports: &ReportStore{t},
	}
	s.Operations = &OperationStore{t, s.Pending}
	s.Consumed = &ConsumedStore{t, s.Outbox}
	s.Claims = &ClaimStore{t, s.Outbox, s.Operations}
	s.Poison = &PoisonStore{t, s.Outbox}
	s.Groups = &GroupStore{t, s.Outbox}
	return s
}

// engines creates the dialect of each database, by bun's name for it. It is immutable.
var engines = map[bundialect.Name]func(bus.Tables) (dialect.Dialect, error){
	bundialect.PG:     postgres.New,
	bundialect.SQLite: sqlite.New,
	bundialect.MySQL:  mariadb.New,
}

// For returns the store for the dialect of a bun handle.
func For(d bundialect.Name, tables bus.Tables) (*Store, error) {
	of, ok := engines[d]
	if !ok {
		return nil, fmt.Errorf("dialect %q is not supported: use one of pg, sqlite, mysql", d)
	}
	e, err := of(tables)
	if err != nil {
		return nil, err
	}
	return newStore(e), nil
}

// Ready reports, in the given time, why the library cannot work with the live database: it cannot
// be reached, its server is refused, its tables are missing or too old, or its settings break
// promises. untested allows a server that was never tested.
func (s *Store) Ready(ctx context.Context, db *bun.DB, within time.Duration, untested bool) (dialect.Settings, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		return dialect.Settings{}, fmt.Errorf("the database cannot be reached: %w", err)
	}
	server, err := s.Server(ctx, db)
	if err == nil {
		err = refused(server, untested)
	}
	if err != nil {
		return dialect.Settings{}, err
	}
	settings, err := s.Check(ctx, db)
	if err = errors.Join(s.Schema.CheckSchema(ctx, db), err); err == nil && server.Name != "" {
		err = s.Schema.readsCommitted(ctx, db, server)
	}
	return settings, err
}
