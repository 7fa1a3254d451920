package guide_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
)

// index is one that is away for as long as the test says.
type index struct {
	away  bool
	added []string
}

func (i *index) Add(_ context.Context, orders []string) (map[int]error, error) {
	if i.away {
		return nil, guide.ErrAway
	}
	i.added = append(i.added, orders...)
	if orders[0] == "bad" {
		return map[int]error{0: bus.Permanent(errors.New("cannot be indexed"))}, nil
	}
	return nil, nil
}

func TestFlowOfTheGuide(t *testing.T) {
	db := openMemory(t)
	if _, err := db.Exec("CREATE TABLE counts AS SELECT 0 AS orders"); err != nil {
		t.Fatal(err)
	}
	search := &guide.Search{Index: new(index)}
	var sent []string
	forward := guide.Forward(func(_ context.Context, payloadType string, _ []byte) error {
		sent = append(sent, payloadType)
		return nil
	})
	kit := bustest.NewKit(t, db, append(search.Consumers(), forward)...)
	if err := guide.Remind(kit.Context(), db, kit.Producer, "o-1"); err != nil {
		t.Fatal(err)
	}
	if err := guide.Remind(kit.Context(), db, kit.Producer, "o-1"); err != nil { // nothing new
		t.Fatal(err)
	}
	kit.Advance(2 * time.Second)
	if runs := kit.DrainUntilIdle(); len(runs) != 6 || len(sent) != 4 {
		t.Errorf("got %d runs, of them forwarded %v: want the order for each of three, and three reminders", len(runs), sent)
	}
	var orders int
	if err := db.NewRaw("SELECT orders FROM counts").Scan(t.Context(), &orders); err != nil || orders != 1 {
		t.Errorf("got %d orders counted (%v), want 1", orders, err)
	}
}

func TestUrgentRemindersOfTheGuideComeFirst(t *testing.T) {
	db := openMemory(t)
	var sent []string
	kit := bustest.NewKit(t, db, guide.Prioritized(func(_ context.Context, r guide.ReminderDue) error {
		sent = append(sent, r.OrderID)
		return nil
	})...)
	kit.Produce(guide.ReminderDue{OrderID: "o-1"})
	if err := guide.Hurry(kit.Context(), db, kit.Producer, "o-2"); err != nil {
		t.Fatal(err)
	}
	kit.DrainUntilIdle()
	if strings.Join(sent, " ") != "o-2 o-1" {
		t.Errorf("got %v, want the urgent one first", sent)
	}
}

func TestOrderedConsumersOfTheGuideRunInOrder(t *testing.T) {
	var synced, audited []string
	note := func(list *[]string) func(context.Context, guide.AddressChanged) error {
		return func(_ context.Context, a guide.AddressChanged) error {
			*list = append(*list, a.Address)
			if a.Address == "nowhere" {
				return bus.Permanent(errors.New("there is no such address"))
			}
			return nil
		}
	}
	kit := bustest.NewKit(t, openMemory(t), guide.Ordered(note(&synced), note(&audited))...)
	for _, address := range []string{"here", "nowhere", "there"} {
		kit.Produce(guide.AddressChanged{CustomerID: "c-1", Address: address})
	}
	kit.DrainUntilIdle()
	if strings.Join(synced, " ") != "here nowhere" || strings.Join(audited, " ") != "here nowhere there" {
		t.Errorf("got %v and %v, want the first to stop behind the poisoned one, and the other to go on", synced, audited)
	}
}

func TestDeclaredConsumersOfTheGuideGetMessages(t *testing.T) {
	registry, err := guide.Declared()
	if err != nil || len(registry.Consumers()) != 0 {
		t.Errorf("got %v, want two consumers that get orders, and none to run", err)
	}
}

func TestStopOfTheGuide(t *testing.T) {
	db := openMemory(t)
	kit := bustest.NewKit(t, db, bus.Consume("c", func(context.Context, guide.ReportDue) error { return nil }))
	kit.Produce(guide.ReportDue{})
	var out strings.Builder
	if err := guide.Stop(kit.Context(), db, kit.Admin, 1, &out); err != nil || out.String() != "1 cancelled\n" {
		t.Errorf("got %q, %v, want it cancelled", out.String(), err)
	}
}
