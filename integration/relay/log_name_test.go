package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// named is bankWith under another name.
func named(name string, pub broker.Publisher, config relay.LogConfig) relay.LogForwarder {
	config.Source, config.Routes = "/bank", []relay.Route{relay.To[opened]("accounts"), relay.To[deposited]("accounts")}
	config.AttemptDelay = 1
	return relay.NewLogForwarder(name, pub, config)
}

// TestANewNameBesideTheRecordsOfAnother is refused by an appender: the old shards have come to different positions, and have
// other streams. With an appender of its own the new forwarder publishes all.
// Promise: relay-log
func TestANewNameBesideTheRecordsOfAnother(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l, s := newLedger(t, db), newShelf()
		l.deposit(20, 5)
		s.before = func(shard int, records []broker.Record) error {
			if shard == 0 && records[0].Attributes["sequence"] >= fmt.Sprintf("%019d", 50) {
				return fmt.Errorf("no: %w", broker.ErrRejected)
			}
			return nil
		}
		r, stop := l.runs(bankWith(s, relay.LogConfig{Shards: 2, BatchSize: 5}))
		testapp.Eventually(t, "one shard halts behind the other", func() bool {
			return l.stats(r).Halted == 1 && l.Count("SELECT count(*) FROM event_subscriptions WHERE position = 100") == 1
		})
		stop()
		s.before = nil
		before := len(s.all())
		for _, shards := range []int{1, 2, 4} {
			config := relay.LogConfig{Shards: shards}
			next := testapp.Must[*relay.Runner](t)(relay.NewRunner(db, l.Registry, relay.RunnerConfig{Log: l.log},
				named(fmt.Sprintf("in %d shards", shards), s, config)))
			ended := make(chan error, 1)
			halt := untilStop(t, func(ctx context.Context) error { ended <- next.Run(ctx); return nil })
			testapp.Eventually(t, "it is refused, or has come to the end", func() bool {
				return len(ended) > 0 || l.Count("SELECT count(*) FROM event_subscriptions WHERE name LIKE 'relay:in%' AND position = 100") == shards
			})
			halt()
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "is not of this forwarder") {
				t.Errorf("%d shards with a new name: got error %v, want that the records are not of this forwarder", shards, err)
			}
			if n := len(s.all()); n != before {
				t.Errorf("%d shards with a new name: got %d records beside those of the old one, want none; all: %s", shards, n-before,
					s.disorder(l.events))
			}
			l.Exec("DELETE FROM event_subscriptions WHERE name LIKE 'relay:in%'")
		}
		own := newShelf()
		l.runs(named("in its own", own, relay.LogConfig{Shards: 4}))
		testapp.Eventually(t, "all is published", func() bool { return own.disorder(l.events) == "" })
	})
}

// TestTwoNamesThatStartOnOneAppender: one of them halts, and publishes nothing.
func TestTwoNamesThatStartOnOneAppender(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l, s := newLedger(t, db), newShelf()
		one, _ := l.runs(named("one", s, relay.LogConfig{}))
		two, _ := l.runs(named("two", s, relay.LogConfig{}))
		testapp.Eventually(t, "both run", func() bool { return one.Health().Ready && two.Health().Ready })
		for range 10 {
			l.deposit(5, 1)
		}
		testapp.Eventually(t, "one halts, and the other publishes all", func() bool {
			return l.stats(one).Halted+l.stats(two).Halted == 1 && s.disorder(l.events) == ""
		})
		if reason := l.stats(one).LastError + l.stats(two).LastError; !strings.Contains(reason, "is not of this forwarder") {
			t.Errorf("got %q, want that the last record is not of this forwarder", reason)
		}
	})
}
