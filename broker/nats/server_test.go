package nats_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/broker"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
)

// greets starts what greets clients as a server does, says the same to each PING, and knows no more.
func greets(t *testing.T, info, answer string) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "INFO {%s,\"max_payload\":1048576}\r\n", info)
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if lines.Text() != "PING" {
					continue
				}
				fmt.Fprint(conn, answer+"\r\n")
				if strings.HasPrefix(answer, "-ERR") {
					break
				}
			}
			_ = conn.Close()
		}
	}()
	return "nats://" + listener.Addr().String()
}

// connect connects as an application does.
func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append(amnats.Options(), nats.ReconnectWait(10*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestServersThatAreTooOldAreRefused(t *testing.T) {
	t.Parallel()
	appender := amnats.AppenderConfig{Stream: "LOG", Prefix: "log"}
	for info, want := range map[string][2]string{
		`"version":"2.1.9","headers":false`:     {"2.1.9 has no headers", "2.1.9 has no atomic batches"},
		`"version":"2.11.4","headers":true`:     {"", "2.11.4 has no atomic batches, 2.12 or newer is needed"},
		`"version":"2.12.0","headers":true`:     {"", ""},
		`"version":"3.0.0-beta","headers":true`: {"", ""},
		`"version":"of our own","headers":true`: {"", ""},
	} {
		nc := connect(t, greets(t, info, "PONG"))
		_, err := amnats.NewPublisher(nc, amnats.PublisherConfig{})
		wantError(t, "publisher for "+info, err, want[0])
		_, err = amnats.NewAppender(nc, appender)
		wantError(t, "appender for "+info, err, want[1])
		nc.Close()
	}
}

func wantError(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: got %v, want %q", what, err, want)
	}
}

// TestWrongCredentialsAreSaid: to connect is no error while no server has answered, so whoever uses the
// connection says what became of it.
func TestWrongCredentialsAreSaid(t *testing.T) {
	t.Parallel()
	nc := connect(t, greets(t, `"version":"2.12.0","headers":true,"auth_required":true`, "-ERR 'Authorization Violation'"))
	publisher, err := amnats.NewPublisher(nc, amnats.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	subscriber, err := amnats.NewSubscriber(nc, amnats.SubscriberConfig{Stream: "ORDERS", Consumer: "shipping"})
	if err != nil {
		t.Fatal(err)
	}
	err = subscriber.Subscribe(t.Context(), func(context.Context, []broker.Record) error { return nil })
	// The server and the client write it with different letters, and either may come first.
	wantError(t, "Subscribe", err, "uthorization")
	err = publisher.Publish(t.Context(), make([]broker.Record, 1))[0]
	wantError(t, "Publish", err, "uthorization")
	if !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("Publish: got %v, want ErrUnavailable", err)
	}
}

func TestDomainsAreNames(t *testing.T) {
	t.Parallel()
	nc := connect(t, greets(t, `"version":"2.12.0","headers":true`, "PONG"))
	for domain, want := range map[string]string{"": "", "hub": "", "eu-1_b": "", "a.b": `Domain "a.b"`, "*": `Domain "*"`,
		"a b": `Domain "a b"`, ">": `Domain ">"`} {
		_, err := amnats.NewPublisher(nc, amnats.PublisherConfig{Domain: domain})
		wantError(t, "publisher", err, want)
		_, err = amnats.NewSubscriber(nc, amnats.SubscriberConfig{Domain: domain, Stream: "ORDERS", Consumer: "shipping"})
		wantError(t, "subscriber", err, want)
		_, err = amnats.NewAppender(nc, amnats.AppenderConfig{Domain: domain, Stream: "LOG", Prefix: "log"})
		wantError(t, "appender", err, want)
	}
}
