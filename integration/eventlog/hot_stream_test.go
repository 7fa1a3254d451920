package eventlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// deposit is a message whose consumer decides on the one account that all meet at.
type deposit struct{}

func (deposit) PayloadType() string { return "deposit" }

// TestAHotStreamCountsNoAttempts has two processors decide on one stream, message by
// message: whoever was second is repeated, which is no failed attempt.
// Promise: conflict
func TestAHotStreamCountsNoAttempts(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		const messages = 120
		var a *app
		d := accounts(100)
		patience := 30 * time.Second // which a machine that is busy with other tests needs to wait for its turn
		a = newApp(t, db, outbox.ConsumeTx("decide", func(ctx context.Context, tx bun.Tx, _ deposit) error {
			_, _, err := decider.Handle(ctx, a.log, tx, d, "hot", 1)
			return err
		}, bus.Timeout(patience)))
		// A second run that counts would be the last: process has MaxAttempts 2.
		a.exec("CREATE TABLE counted (errors text)")
		if a.isPostgres() {
			a.exec(`CREATE FUNCTION count_attempt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO counted VALUES (NEW.errors); RETURN NEW; END $$`)
			a.exec(`CREATE TRIGGER count_attempt AFTER UPDATE ON consumer_messages FOR EACH ROW WHEN (NEW.attempts > OLD.attempts) EXECUTE FUNCTION count_attempt()`)
		} else {
			a.exec(`CREATE TRIGGER count_attempt AFTER UPDATE ON consumer_messages WHEN NEW.attempts > OLD.attempts BEGIN INSERT INTO counted VALUES (NEW.errors); END`)
		}
		items := make([]outbox.Item, messages)
		for i := range items {
			items[i].Payload = deposit{}
		}
		testapp.OK(t, testapp.Second(a.producer.ProduceMany(a.ctx, db, items...)))
		a.process()
		if a.isPostgres() { // one more at the one write lock of SQLite only waits
			a.process()
		}
		eventually(t, "all have decided", func() bool { return a.count("SELECT count(*) FROM consumer_messages") == 0 })
		var counted []string
		if err := db.NewRaw("SELECT errors FROM counted").Scan(t.Context(), &counted); err != nil || len(counted) > 0 {
			t.Errorf("attempts that counted: got %d, error %v, want none: %s", len(counted), err, counted)
		}
		if n := a.count("SELECT count(*) FROM poisoned_messages"); n != 0 {
			t.Errorf("poisoned: got %d, want none", n)
		}
		state, _, err := decider.Load(a.ctx, a.log, db, d, "hot")
		if err != nil || state.Balance != messages {
			t.Errorf("state: got %+v and %v, want a balance of %d", state, err, messages)
		}
	})
}
