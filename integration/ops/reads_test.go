package ops_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// crowd is what there is to look at.
var crowd = testapp.Crowd{Pending: 1_000_000, Poisoned: 100_000} // immutable

const (
	// pageReads are the most rows that one look may read. Of an overview it is so many of each consumer. Of each group that is
	// shown it would be 10,000: but one of the crowd's only has so many, and of the others 50 have 10,000 together.
	pageReads, consumerReads, groupReads = 20_000, 30_000, 30_000

	// Apart are those who search: through parts of 50,000 messages, whose ids are read before they are, or through all that is
	// poisoned, by what has no index.
	findReads = 130_000
	// A preview reads in addition the ids of up to 100,000 matches, which the operation will change, and the processes.
	previewReads = 105_000

	crowdConsumers = 20
)

// read is a look at the crowd.
type read struct {
	method, what string
	most         int
	look         func(ctx context.Context, s *operator.Session) error
}

func (r read) String() string { return strings.TrimSpace(r.method + " " + r.what) }

// anybody are ids of the crowd.
type anybody struct {
	message, keyed, poisoned, claim, schedule, operation int64
	messageID                                            uuid.UUID
}

// readsOf are the methods that read, with what makes them read most.
func readsOf(of anybody) []read {
	all := []read{
		{"Overview", "", crowdConsumers * consumerReads,
			func(ctx context.Context, s *operator.Session) error { return testapp.Second(s.Overview(ctx)) }},
		{"LastOverview", "", 0,
			func(ctx context.Context, s *operator.Session) error { return testapp.Third(s.LastOverview(ctx)) }},
		{"CachedOverview", "", crowdConsumers * consumerReads,
			func(ctx context.Context, s *operator.Session) error { return testapp.Third(s.CachedOverview(ctx)) }},
		{"Check", "", crowdConsumers * consumerReads,
			func(ctx context.Context, s *operator.Session) error { return testapp.Second(s.Check(ctx)) }},
		{"Doctor", "", crowdConsumers * consumerReads,
			func(ctx context.Context, s *operator.Session) error { return testapp.Second(s.Doctor(ctx)) }},
		{"Poisoned.Groups", "of all", groupReads,
			func(ctx context.Context, s *operator.Session) error {
				return testapp.Third(s.Poisoned().Groups(ctx, ""))
			}},
		{"Poisoned.Groups", "of one", groupReads, func(ctx context.Context, s *operator.Session) error {
			return testapp.Third(s.Poisoned().Groups(ctx, "consumer-00"))
		}},
	}
	add := func(method, what string, look func(ctx context.Context, s *operator.Session) error) {
		all = append(all, read{method, what, pageReads, look})
	}
	messages := func(what string, f admin.Filter) {
		add("Messages.List", what, func(ctx context.Context, s *operator.Session) error {
			return testapp.Third(s.Messages().List(ctx, f, admin.Page{Size: 1000}))
		})
	}
	messages("all", admin.Filter{})
	messages("of a consumer", admin.Filter{Consumer: "consumer-07"})
	messages("of nobody", admin.Filter{Consumer: "nobody"})
	messages("of a payload type", admin.Filter{PayloadType: "payload-7"})
	messages("of no payload type", admin.Filter{Consumer: "consumer-07", PayloadType: "nothing"})
	messages("with an insert id", admin.Filter{InsertID: "insert-1007"})
	messages("with a key", admin.Filter{Consumer: "consumer-19", OrderingKey: "key-19"})
	messages("with a message id", admin.Filter{MessageID: of.messageID})
	messages("tried before", admin.Filter{Retrying: true})
	messages("that crashed", admin.Filter{Crashed: true})
	messages("old", admin.Filter{OlderThan: 24 * time.Hour})
	messages("ready", admin.Filter{State: admin.Ready})
	messages("delayed", admin.Filter{State: admin.Delayed})
	messages("leased", admin.Filter{State: admin.Leased})
	poisoned := func(what string, most int, f poison.Filter) {
		add := func(method, what string, beside int, look func(ctx context.Context, s *operator.Session) error) {
			all = append(all, read{method, what, most + beside, look})
		}
		add("Poisoned.List", what, 0, func(ctx context.Context, s *operator.Session) error {
			return testapp.Third(s.Poisoned().List(ctx, f, admin.Page{Size: 1000}))
		})
		add("Poisoned.Count", what, 0, func(ctx context.Context, s *operator.Session) error {
			return testapp.Second(s.Poisoned().Count(ctx, f))
		})
		add("Operations.Preview", what, previewReads, func(ctx context.Context, s *operator.Session) error {
			return unless(ops.ErrNoMatch, testapp.Second(s.Operations().Preview(ctx, ops.Requeue, ops.Target{Poisoned: &f})))
		})
	}
	poisoned("all", pageReads, poison.Filter{})
	poisoned("of a consumer", pageReads, poison.Filter{Consumer: "consumer-00"})
	poisoned("of nobody", pageReads, poison.Filter{Consumer: "nobody"})
	poisoned("of a group", pageReads, poison.Filter{Consumer: "consumer-00", Fingerprint: "10000000000000000"})
	poisoned("of a small group", pageReads, poison.Filter{Consumer: "consumer-01", Fingerprint: "10000000000000003"})
	poisoned("unclassified", pageReads, poison.Filter{Consumer: "consumer-01", Fingerprint: poison.Unclassified})
	poisoned("with a message id", pageReads, poison.Filter{MessageID: of.messageID})
	poisoned("of a payload type", crowd.Poisoned, poison.Filter{PayloadType: "payload-7"})
	poisoned("of no payload type", crowd.Poisoned, poison.Filter{PayloadType: "nothing"})
	poisoned("of an hour ago", pageReads, poison.Filter{PoisonedBefore: time.Now().Add(-time.Hour)})
	poisoned("of a text", pageReads, poison.Filter{Error: "no luck"})
	// A search for a text first reads the kinds of messages, since Redact may hide the texts of some.
	poisoned("of a rare text", crowd.Poisoned+crowdConsumers, poison.Filter{Error: "in no message"})
	poisoned("of a key", crowd.Poisoned, poison.Filter{OrderingKey: "key-1"})
	all = append(all, read{"Operations.Preview", "of few pending messages", 2*crowd.Pending + pageReads,
		func(ctx context.Context, s *operator.Session) error { // through all parts
			return testapp.Second(s.Operations().Preview(ctx, ops.Cancel,
				ops.Target{Pending: &admin.Filter{Consumer: "consumer-02", Retrying: true}}))
		}})
	consumed := func(what string, most int, f admin.ConsumedFilter) {
		all = append(all, read{"Consumed.List", what, most, func(ctx context.Context, s *operator.Session) error {
			return testapp.Third(s.Consumed().List(ctx, f, admin.Page{Size: 1000}))
		}})
	}
	consumed("all", pageReads, admin.ConsumedFilter{})
	consumed("of a consumer", pageReads, admin.ConsumedFilter{Consumer: "consumer-07"})
	consumed("with a key", pageReads, admin.ConsumedFilter{OrderingKey: "key-19"})
	consumed("with a message id", pageReads, admin.ConsumedFilter{MessageID: of.messageID})
	consumed("of a rare header", 2*findReads, admin.ConsumedFilter{Header: "tenant", Value: "nobody"})
	id := func(method string, look func(ctx context.Context, s *operator.Session) error) { add(method, "", look) }
	id("Messages.Get", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Messages().Get(ctx, of.message))
	})
	id("Poisoned.Get", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Poisoned().Get(ctx, of.poisoned))
	})
	id("Consumed.Get", func(ctx context.Context, s *operator.Session) error { return testapp.Second(s.Consumed().Get(ctx, 1)) })
	id("Consumed.ListByID", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Consumed().ListByID(ctx, 1, 2))
	})
	id("Messages.Explain", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Messages().Explain(ctx, of.message))
	})
	add("Messages.Explain", "of one with a key", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Messages().Explain(ctx, of.keyed))
	})
	id("Messages.ListByID", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Messages().ListByID(ctx, of.message, of.keyed))
	})
	id("Messages.ListClaimed", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Messages().ListClaimed(ctx, of.claim))
	})
	id("Consumers.Claims", func(ctx context.Context, s *operator.Session) error { return testapp.Second(s.Consumers().Claims(ctx)) })
	id("Messages.Crashes", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Messages().Crashes(ctx, 0, 100))
	})
	id("Consumers.BlockedKeys", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Consumers().BlockedKeys(ctx, "", 100))
	})
	id("Consumers.Minutes", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Consumers().Minutes(ctx, 48*time.Hour, "consumer-07"))
	})
	id("Consumers.Failures", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Consumers().Failures(ctx, "", 100))
	})
	id("Consumers.Schemas", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Consumers().Schemas(ctx, "consumer-07"))
	})
	id("AsyncAPI", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.AsyncAPI(ctx, "Shop", "1"))
	})
	id("Processes", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Processes(ctx, 24*time.Hour))
	})
	id("HasRunner", func(ctx context.Context, s *operator.Session) error { return testapp.Second(s.HasRunner(ctx, 0, "")) })
	id("Schedules.List", func(ctx context.Context, s *operator.Session) error {
		return testapp.Third(s.Schedules().List(ctx, schedule.Filter{}, admin.Page{Size: 1000}))
	})
	id("Schedules.Get", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Schedules().Get(ctx, of.schedule))
	})
	id("Operations.List", func(ctx context.Context, s *operator.Session) error {
		return testapp.Third(s.Operations().List(ctx, admin.Page{Size: 1000}))
	})
	id("Operations.Get", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Operations().Get(ctx, of.operation))
	})
	id("Projections.List", func(ctx context.Context, s *operator.Session) error { return testapp.Second(s.Projections().List(ctx)) })
	id("Projections.Parked", func(ctx context.Context, s *operator.Session) error {
		return testapp.Second(s.Projections().Parked(ctx, "projection-1", 1, 0, 100))
	})
	id("FindInstallations", func(ctx context.Context, s *operator.Session) error { return testapp.Second(s.FindInstallations(ctx)) })
	id("Poisoned.CheckEdit", func(ctx context.Context, s *operator.Session) error {
		return unless(bus.ErrNoConsumer, testapp.Second(s.Poisoned().CheckEdit(ctx, of.poisoned, []byte(`{}`))))
	})
	return append(all, read{"Messages.Find", "", findReads, func(ctx context.Context, s *operator.Session) error {
		return testapp.Third(s.Messages().Find(ctx, admin.Search{MessageID: of.messageID}, admin.Cursor{}))
	}})
}

// unless is an error but for one.
func unless(expected, err error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// changes are the methods that change something. What these read is what they change.
var changes = []string{ // immutable
	"Consumed.Repeat",
	"Consumers.Pause", "Consumers.Resume", "Consumers.Probe", "Messages.RunNow", "Messages.Reschedule", "Messages.Cancel", "Poisoned.Requeue",
	"Poisoned.Discard", "Poisoned.EditAndRequeue", "Poisoned.Export", "Projections.Resume",
	"Schedules.Trigger", "Schedules.Pause", "Schedules.Resume", "Schedules.Delete", "Schedules.Update", "Operations.Plan", "Operations.Start",
	"Operations.Undo", "Operations.Stop", "Operations.Resume", "Operations.SetRate",
}

// TestAllReadsAreCounted: no method reads without being in the table.
func TestAllReadsAreCounted(t *testing.T) {
	known := slices.Clone(changes)
	for _, r := range readsOf(anybody{}) {
		known = append(known, r.method)
	}
	for name := range methodsOf(&operator.Session{Session: new(ops.Session)}) {
		if !slices.Contains(known, name) {
			t.Errorf("%s is neither among what reads nor among what changes", name)
		}
	}
}

// TestBoundedReads: however much there is, nobody who looks has the database read more than a page is worth.
func TestBoundedReads(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry())
	testapp.OK(t, outbox.Migrate(t.Context(), db, registry.Tables()))
	testapp.NewCrowd(t, db, crowd)
	db.SetMaxOpenConns(1) // RowsRead
	of := anybody{poisoned: 10_000_001}
	scan := func(value any, query string) {
		t.Helper()
		if err := db.NewRaw(query).Scan(t.Context(), value); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	scan(&of.message, "SELECT id FROM consumer_messages WHERE consumer_type = 'consumer-07' ORDER BY id DESC LIMIT 1")
	scan(&of.keyed, "SELECT id FROM consumer_messages WHERE consumer_type = 'consumer-19' ORDER BY id DESC LIMIT 1")
	scan(&of.messageID, "SELECT message_id FROM consumer_messages ORDER BY id DESC LIMIT 1 OFFSET 500000")
	scan(&of.claim, "SELECT min(id) FROM message_claims")
	scan(&of.schedule, "SELECT min(id) FROM scheduled_messages")
	scan(&of.operation, "SELECT max(id) FROM message_operations")
	for _, r := range readsOf(of) {
		err, began := ops.ErrBusy, time.Now()
		var read testapp.Reads
		for errors.Is(err, ops.ErrBusy) && time.Since(began) < time.Minute { // on a busy machine: it counts what is read, not how fast
			read = testapp.RowsRead(t, db, func() {
				err = r.look(t.Context(), operator.As(serviceOf(t, db, registry), someone(ops.Administrator)))
			})
		}
		if err != nil {
			t.Errorf("%s: %v", r, err)
		}
		t.Logf("%s took %s", r, time.Since(began))
		t.Logf("%s reads %d rows", r, read.Sum()) // for docs/contributing/performance.md
		if read.Sum() > r.most {
			t.Errorf("%s reads %d rows, want %d at most: %v", r, read.Sum(), r.most, read)
		}
	}
}
