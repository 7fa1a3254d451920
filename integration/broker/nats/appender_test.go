//go:build unix

package nats_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
)

// newShelf makes a stream of atomic batches, and an appender to it.
func newShelf(t testing.TB, servers *brokers.NATS, replicas int) (*place, *amnats.Appender) {
	t.Helper()
	at := &place{servers: servers, nc: connect(t, servers), name: rand.Text()}
	var err error
	if at.js, err = jetstream.New(at.nc); err != nil {
		t.Fatal(err)
	}
	retry(t, func(ctx context.Context) error {
		at.stream, err = at.js.CreateStream(ctx,
			jetstream.StreamConfig{Name: at.name, Subjects: []string{at.name + ".>"}, Replicas: replicas, AllowAtomicPublish: true})
		return err
	})
	return at, at.appender(t, 10*time.Second) // a busy machine is no outage
}

func (at *place) appender(t testing.TB, timeout time.Duration) *amnats.Appender {
	t.Helper()
	a, err := amnats.NewAppender(at.nc, amnats.AppenderConfig{Stream: at.name, Prefix: at.name + ".log", Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// numbered are records of positions.
func numbered(from, to int) (records []broker.Record) {
	for i := from; i <= to; i++ {
		records = append(records, broker.Record{ID: fmt.Sprint(i), Key: "a-1", Body: fmt.Append(nil, i),
			Attributes: map[string]string{"type": "account.opened", "sequence": fmt.Sprintf("%019d", i), "partitionkey": "a-1"}})
	}
	return records
}

func (at *place) count(t testing.TB) int {
	t.Helper()
	info := testapp.Must[*jetstream.StreamInfo](t)(at.stream.Info(t.Context()))
	return int(info.State.Msgs)
}

func TestAppendsAreFenced(t *testing.T) {
	at, a := newShelf(t, brokers.StartNATS(t, 1), 1)
	want := func(shard int, position int64, revision uint64) {
		t.Helper()
		id := ""
		if position > 0 {
			id = fmt.Sprint(position)
		}
		if got, p, m, err := a.Last(t.Context(), shard); got != id || p != position || m != revision || err != nil {
			t.Errorf("last of shard %d: got id %q, position %d, revision %d, %v, want %q, %d and %d", shard, got, p, m, err, id, position, revision)
		}
	}
	want(0, 0, 0)
	revision, err := a.Append(t.Context(), 0, 0, numbered(1, 3))
	if revision != 3 || err != nil {
		t.Fatalf("append: got revision %d, %v, want 3", revision, err)
	}
	if revision, err = a.Append(t.Context(), 1, 0, numbered(4, 4)); revision != 4 || err != nil { // of another shard
		t.Fatalf("append: got revision %d, %v, want 4", revision, err)
	}
	for range 50 {
		if _, err := a.Append(t.Context(), 0, 0, numbered(1, 3)); !errors.Is(err, broker.ErrSequenceConflict) {
			t.Fatalf("stale append: got %v, want ErrSequenceConflict", err)
		}
	}
	if _, err := a.Append(t.Context(), 0, 4, numbered(1, 1)); !errors.Is(err, broker.ErrSequenceConflict) {
		t.Errorf("append after a revision of another shard: got %v, want ErrSequenceConflict", err)
	}
	if revision, err = a.Append(t.Context(), 0, 3, numbered(5, 1004)); revision != 1004 || err != nil {
		t.Errorf("append of 1000: got revision %d, %v, want 1004", revision, err)
	}
	want(0, 1004, 1004)
	want(1, 4, 4)
	want(11, 0, 0)
	if n := at.count(t); n != 1004 {
		t.Errorf("got %d messages, want 1004", n)
	}
	msg, err := at.stream.GetMsg(t.Context(), 2)
	if err != nil || msg.Subject != at.name+".log.0.account.opened" || string(msg.Data) != "2" || msg.Header.Get("asyncmonolith-id") != "2" {
		t.Errorf("got %+v, %v, want the second record, with its id", msg, err)
	}
}

// TestABatchIsAllOrNone: of a batch that cannot be taken whole nothing is there.
func TestABatchIsAllOrNone(t *testing.T) {
	at, a := newShelf(t, brokers.StartNATS(t, 1), 1)
	records := numbered(1, 3)
	records[1].Body = make([]byte, 2<<20)
	if _, err := a.Append(t.Context(), 0, 0, records); !errors.Is(err, broker.ErrRejected) {
		t.Errorf("too large: got %v, want ErrRejected", err)
	}
	if _, err := a.Append(t.Context(), 0, 0, numbered(1, 1001)); err == nil || errors.Is(err, broker.ErrSequenceConflict) {
		t.Errorf("too many: got %v, want an error", err)
	}
	if n := at.count(t); n != 0 {
		t.Errorf("got %d messages, want none", n)
	}
	if revision, err := a.Append(t.Context(), 0, 0, numbered(1, 3)); revision != 3 || err != nil {
		t.Errorf("afterwards: got revision %d, %v, want 3", revision, err)
	}
}

// TestAStreamWithManyBatchesOpenIsBusy: the server has 50 at most, and those that nobody ends, of processes that were
// killed say, for 10 s. That is no fault of a record's.
func TestAStreamWithManyBatchesOpenIsBusy(t *testing.T) {
	at, a := newShelf(t, brokers.StartNATS(t, 1), 1)
	for range 60 {
		begun := nats.NewMsg(at.name + ".log.9.x")
		begun.Header.Set("Nats-Batch-Id", rand.Text())
		begun.Header.Set("Nats-Batch-Sequence", "1")
		testapp.OK(t, at.nc.PublishMsg(begun))
	}
	// Of several records the server only says that some are missing: the relay tries fewer, down to one.
	if _, err := a.Append(t.Context(), 0, 0, numbered(1, 1)); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("append of one record: got %v, want ErrUnavailable", err)
	}
}

// TestStreamsThatAreNoLog: what would not do is told when the relay looks where it stands.
func TestStreamsThatAreNoLog(t *testing.T) {
	servers := brokers.StartNATS(t, 1)
	at := newPlace(t, servers, 1) // without atomic batches
	of := func(stream, prefix string) error {
		a, err := amnats.NewAppender(at.nc, amnats.AppenderConfig{Stream: stream, Prefix: prefix, Timeout: timeout})
		if err != nil {
			return err
		}
		_, _, _, err = a.Last(t.Context(), 0)
		return err
	}
	wantText(t, "no atomic batches", of(at.name, at.name+".log"), "AllowAtomicPublish", "2.12")
	wantText(t, "no stream", of("NONE", "log"), "stream not found", "NONE")
	wantText(t, "a wildcard", of(at.name, "log.>"), "Prefix")
	shelf, a := newShelf(t, servers, 1)
	wantText(t, "other subjects", of(shelf.name, "elsewhere"), "must include")
	testapp.OK(t, testapp.Second(shelf.js.Publish(t.Context(), shelf.name+".log.0.x", []byte("hello"))))
	_, _, _, err := a.Last(t.Context(), 0)
	wantText(t, "another program's message", err, "not a relay's record")
	if _, err := at.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "WORK", Subjects: []string{"work.>"},
		AllowAtomicPublish: true, Retention: jetstream.WorkQueuePolicy}); err != nil {
		t.Fatal(err)
	}
	wantText(t, "a stream that loses what was acknowledged", of("WORK", "work"), "limits is needed")
	_, err = amnats.NewAppender(at.nc, amnats.AppenderConfig{})
	wantText(t, "nothing", err, "Stream is required", "Prefix")
}

// TestAnAppenderWithoutItsServer says that it is away, in its time.
func TestAnAppenderWithoutItsServer(t *testing.T) {
	servers := brokers.StartNATS(t, 1)
	at, _ := newShelf(t, servers, 1)
	a := at.appender(t, timeout)
	testapp.OK(t, servers.Pause())
	begun := time.Now()
	_, err := a.Append(t.Context(), 0, 0, numbered(1, 3))
	if !errors.Is(err, broker.ErrUnavailable) || time.Since(begun) > 2*timeout {
		t.Errorf("append: got %v after %s, want ErrUnavailable", err, time.Since(begun))
	}
	if _, _, _, err := a.Last(t.Context(), 0); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("last: got %v, want ErrUnavailable", err)
	}
}
