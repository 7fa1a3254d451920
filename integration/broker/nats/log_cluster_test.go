//go:build unix

package nats_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// TestALogSurvivesLeaders kills the leader of a stream of three replicas while a log is relayed to it:
// each event is there once, in the order of its shard.
func TestALogSurvivesLeaders(t *testing.T) {
	if !*clusters {
		return
	}
	const rounds, each, streams = 3, 2000, 20
	at, appender := newShelf(t, brokers.StartNATS(t, 3), 3)
	from := newBank(t, testdb.SQLite(t))
	from.runs(relay.NewLogForwarder("ledger", appender, relay.LogConfig{Source: "/bank", Shards: 2, BatchSize: 20,
		AttemptDelay: time.Millisecond, MaxAttempts: 1000, Routes: []relay.Route{relay.To[deposited]("")}}))
	for range rounds {
		from.deposit(each, streams)
		testapp.OK(t, at.killLeader(t))
	}
	testapp.Poll(t, "all is published", 2*time.Minute, 50*time.Millisecond, func() bool {
		return from.Count("SELECT count(*) FROM event_subscriptions WHERE position < ?", rounds*each) == 0
	})
	var info *jetstream.StreamInfo
	retry(t, func(ctx context.Context) (err error) {
		info, err = at.stream.Info(ctx)
		return err
	})
	if info.State.Msgs != rounds*each {
		t.Errorf("got %d messages, want %d", info.State.Msgs, rounds*each)
	}
	last := make(map[string]int64)
	consumer := testapp.Must[jetstream.Consumer](t)(at.stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{}))
	for read, empty := 0, 0; read < rounds*each; {
		batch := testapp.Must[jetstream.MessageBatch](t)(consumer.Fetch(500, jetstream.FetchMaxWait(3*time.Second)))
		got := 0
		for msg := range batch.Messages() {
			position, err := strconv.ParseInt(msg.Headers().Get("ce-sequence"), 10, 64)
			if err != nil || position <= last[msg.Subject()] {
				t.Fatalf("%s: got position %d after %d, %v", msg.Subject(), position, last[msg.Subject()], err)
			}
			last[msg.Subject()] = position
			got++
		}
		if got == 0 {
			empty++ // while the consumer moves to another server
		}
		if read += got; empty > 5 {
			t.Fatalf("got %d messages, and no more", read)
		}
	}
}
