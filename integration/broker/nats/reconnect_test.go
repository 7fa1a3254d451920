//go:build unix

package nats_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
)

// TestTheCircuitClosesOnceTheServerIsBack: an application that wires nothing publishes again soon after its
// server is back, long before the next probe.
func TestTheCircuitClosesOnceTheServerIsBack(t *testing.T) {
	at := newPlace(t, brokers.StartNATS(t, 1), 1)
	nc := connectTo(t, at.servers.URL()) // with Options alone
	var circuit outbox.Circuit
	a := testapp.New(t, testdb.SQLite(t), relay.NewForwarder("to-nats", newPublisher(t, nc, timeout),
		relay.Config{Source: "/here", Circuit: &circuit, Routes: []relay.Route{relay.To[testapp.Order](at.name + ".x")}}))
	testapp.OK(t, at.servers.Kill())
	a.ProduceMany(3)
	a.Start(testapp.Fast())
	const away, probe = 15500 * time.Millisecond, 30 * time.Second // it probes after 1, 3, 7, 15 and some 30 s
	testapp.Poll(t, "the circuit is open for long", 2*away, 10*time.Millisecond, func() bool {
		since, _, open := circuit.Tripped()
		return open && time.Since(since) > away
	})
	since, _, _ := circuit.Tripped()
	testapp.OK(t, at.servers.Start())
	back := time.Now()
	testapp.Poll(t, "all is published", 30*time.Second, 10*time.Millisecond, a.Empty)
	if time.Since(since) > probe {
		t.Errorf("got all published %s after the server was back, %s after it had gone, want it before a probe", time.Since(back),
			time.Since(since))
	}
	t.Logf("published %s after the server was back", time.Since(back))
}

// TestAnApplicationStartsBeforeItsServer: what is made on a connection without a server works once there is
// one.
func TestAnApplicationStartsBeforeItsServer(t *testing.T) {
	at := newPlace(t, brokers.StartNATS(t, 1), 1)
	testapp.OK(t, at.servers.Kill())
	late := *at
	late.nc = connect(t, at.servers)
	late.publisher = newPublisher(t, late.nc, timeout)
	records := []broker.Record{{Destination: at.name + ".x", ID: "1", Body: []byte("1")}}
	if err := late.publisher.Publish(t.Context(), records)[0]; !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("no server: got %v, want ErrUnavailable", err)
	}
	if err := late.publisher.Check(t.Context(), records[0].Destination); !errors.Is(err, broker.ErrUnavailable) ||
		!strings.Contains(err.Error(), "the connection is down") {
		t.Errorf("check: got %v, want that the connection is down", err)
	}
	brought := make(chan struct{}, 1) // one is enough to know
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	subscriber := late.subscriber(t, "all")
	why := make(chan error, 1)
	subscriber.OnOutage(func(err error) {
		select {
		case why <- err:
		default:
		}
	})
	go func() {
		ended <- subscriber.Subscribe(ctx, func(context.Context, []broker.Record) error {
			select {
			case brought <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Subscribe: got %v, want nil", err)
		}
	}()
	if err := <-why; err == nil || !strings.Contains(err.Error(), "the connection is down") {
		t.Errorf("outage: got %v, want that the connection is down", err)
	}
	testapp.OK(t, at.servers.Start())
	within(t, 20*time.Second, "the record is published", func() bool { return late.publisher.Publish(t.Context(), records)[0] == nil })
	select {
	case <-brought:
	case <-time.After(20 * time.Second):
		t.Error("nothing came")
	}
}

// TestRefusedCredentialsAreTriedAgain: a password that was wrong for a while ends no connection.
func TestRefusedCredentialsAreTriedAgain(t *testing.T) {
	dir, port := t.TempDir(), server.RANDOM_PORT
	var srv *server.Server
	runs := func(password string) {
		t.Helper()
		if srv != nil {
			srv.Shutdown()
			srv.WaitForShutdown()
		}
		var err error
		srv, err = server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoLog: true,
			NoSigs: true, Username: "u", Password: password})
		if err != nil {
			t.Fatal(err)
		}
		srv.Start()
		if !srv.ReadyForConnections(20 * time.Second) {
			t.Fatal("the server is not ready")
		}
		port = srv.Addr().(*net.TCPAddr).Port
	}
	runs("p")
	defer func() { srv.Shutdown(); srv.WaitForShutdown() }()
	var refused atomic.Int32
	nc := connectTo(t, strings.Replace(srv.ClientURL(), "nats://", "nats://u:p@", 1))
	nc.SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) { refused.Add(1) })
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	retry(t, func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
		return err
	})
	publisher := newPublisher(t, nc, timeout)
	runs("q")
	within(t, 20*time.Second, "the password is refused a few times", func() bool { return refused.Load() > 3 })
	err = publisher.Publish(t.Context(), []broker.Record{{Destination: "s.x", ID: "1"}})[0]
	if !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	wantText(t, "publish", err, "uthorization")
	runs("p")
	within(t, 20*time.Second, "a record is published", func() bool {
		return publisher.Publish(t.Context(), []broker.Record{{Destination: "s.x", ID: "1"}})[0] == nil
	})
}

// TestWithoutPermissionToLookUpStreams: without the permission to ask which stream has a subject, nobody there is
// taken for none.
func TestWithoutPermissionToLookUpStreams(t *testing.T) {
	publisher := newPublisher(t, permitted(t, &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"orders.>"}}}), timeout)
	err := publisher.Publish(t.Context(), []broker.Record{{Destination: "orders.placed", ID: "1"}})[0]
	if !errors.Is(err, broker.ErrNoDestination) {
		t.Errorf("got %v, want ErrNoDestination", err)
	}
	wantText(t, "publish", err, `"orders.placed"`, "Permissions Violation", "STREAM.NAMES")
	err = publisher.Check(t.Context(), "orders.placed")
	wantText(t, "check", err, `"orders.placed"`, "Permissions Violation")
}

// permitted is a connection to a server of its own, where it may do no more.
func permitted(t *testing.T, permissions *server.Permissions) *nats.Conn {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		Users: []*server.User{{Username: "u", Password: "p", Permissions: permissions}},
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return connectTo(t, strings.Replace(srv.ClientURL(), "nats://", "nats://u:p@", 1))
}

// TestComplaintsOfBefore: what a connection has complained of says nothing of what fails later, for another reason.
func TestComplaintsOfBefore(t *testing.T) {
	nc := permitted(t, &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"$JS.API.>", "silent"}}})
	js := testapp.Must[jetstream.JetStream](t)(jetstream.New(nc))
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SILENT", Subjects: []string{"silent"}, NoAck: true}); err != nil {
		t.Fatal(err)
	}
	complain := func() {
		before := nc.LastError()
		testapp.OK(t, errors.Join(nc.Publish("theirs", nil), nc.Flush()))
		within(t, 20*time.Second, "the server complains", func() bool { return nc.LastError() != before })
	}
	silent := func(p *amnats.Publisher) string {
		return p.Publish(t.Context(), []broker.Record{{Destination: "silent", ID: "1"}})[0].Error()
	}
	complain()
	publisher := newPublisher(t, nc, 200*time.Millisecond)
	if text := silent(publisher); strings.Contains(text, "Permissions") {
		t.Errorf("a complaint of before there was a publisher: got %s, want it left out", text)
	}
	wantText(t, "its own", publisher.Publish(t.Context(), []broker.Record{{Destination: "forbidden", ID: "1"}})[0],
		"Permissions Violation", "forbidden")
	complain()
	within(t, 20*time.Second, "the complaint is over", func() bool { return !strings.Contains(silent(publisher), "Permissions") })
}

// TestWithoutPermissionToReceiveAnswers: the server complains of that once, and nothing comes from then on.
func TestWithoutPermissionToReceiveAnswers(t *testing.T) {
	nc := permitted(t, &server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"_INBOX.>"}}})
	subscriber, err := amnats.NewSubscriber(nc, amnats.SubscriberConfig{Stream: "ORDERS", Consumer: "shipping"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var outages []error
	subscriber.OnOutage(func(err error) {
		if outages = append(outages, err); len(outages) == 3 { // long after the complaint
			cancel()
		}
	})
	testapp.OK(t, subscriber.Subscribe(ctx, never))
	if len(outages) != 3 {
		t.Fatalf("got %d outages, want 3", len(outages))
	}
	wantText(t, "the third time", outages[2], "Permissions Violation", "_INBOX")
}
