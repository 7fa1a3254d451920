package rabbitmq

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"

	amqp "github.com/rabbitmq/amqp091-go"
)

// These tests are internal: a dial has longer than a test may wait.

// startsWith is a server that offers mechanisms of authentication, and then says nothing: to its first clients it
// closes the connection once they have answered. held is closed when it holds a client, and ended when that has gone.
func startsWith(t *testing.T, mechanisms string, drops int) (url string, held, ended chan struct{}) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	long := func(text string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	}
	start := []byte{0, 10, 0, 10, 0, 9, 0, 0, 0, 0} // connection.start of 0-9, without properties
	start = append(append(start, long(mechanisms)...), long("en_US")...)
	frame := binary.BigEndian.AppendUint32([]byte{1, 0, 0}, uint32(len(start)))
	frame = append(append(frame, start...), 0xCE)
	held, ended = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			_, err = socket.Write(frame)
			if drops > 0 && err == nil {
				_, _ = io.ReadFull(socket, make([]byte, 20)) // the protocol's header of 8, and of the answer something
			} else if err == nil {
				close(held)
				_, _ = io.Copy(io.Discard, socket) // until the client goes
			}
			_ = socket.Close()
			if drops--; drops < 0 {
				return
			}
		}
	}()
	return "amqp://user:secret@" + listener.Addr().String() + "/", held, ended
}

// TestABrokerThatHangsHasNotRefused: the client takes any end of a handshake for wrong credentials.
func TestABrokerThatHangsHasNotRefused(t *testing.T) {
	t.Parallel()
	url, _, ended := startsWith(t, "PLAIN", 0)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := dial(ctx, []string{url}, nil); err == nil || isRefusal(err) {
		t.Errorf("got %v, want an error after which one tries again", err)
	}
	<-ended
}

// TestAHandshakeThatFailsLeavesNothing: neither a connection nor who reads it.
func TestAHandshakeThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	url, _, ended := startsWith(t, "GSSAPI", 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := dial(ctx, []string{url}, nil); !isRefusal(err) {
		t.Errorf("got %v, want that there is no way to sign in", err)
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the connection is open, want it closed")
	}
}

// TestRefusalsMayPass: a node that ends while somebody signs in seems to refuse.
func TestRefusalsMayPass(t *testing.T) {
	t.Parallel()
	for drops, ends := range map[int]bool{mostRefusals - 1: false, mostRefusals: true} {
		url, held, _ := startsWith(t, "PLAIN", drops)
		s, err := NewSubscriber(SubscriberConfig{URLs: []string{url}, Queue: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			err := s.Subscribe(ctx, func(context.Context, []broker.Record) error { return nil })
			if (err != nil) != ends || err != nil && (!errors.Is(err, amqp.ErrCredentials) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("after %d connections that ended: got %v, want an error: %t", drops, err, ends)
			}
		}()
		select {
		case <-held:
		case <-done:
		}
		cancel()
		<-done
	}
}
