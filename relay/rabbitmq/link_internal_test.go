package rabbitmq

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

// These tests are internal: a dial has longer than a test may wait.

// startsWith is a server that offers mechanisms of authentication, and then says nothing. ended is closed when its
// first client has gone.
func startsWith(t *testing.T, mechanisms string) (url string, ended chan struct{}) {
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
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		socket, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = socket.Close() }()
		if _, err := socket.Write(frame); err == nil {
			_, _ = io.Copy(io.Discard, socket) // until the client goes
		}
	}()
	return "amqp://user:secret@" + listener.Addr().String() + "/", ended
}

// TestABrokerThatHangsHasNotRefused: the client takes any end of a handshake for wrong credentials.
func TestABrokerThatHangsHasNotRefused(t *testing.T) {
	t.Parallel()
	url, ended := startsWith(t, "PLAIN")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := dial(ctx, []string{url}, nil); err == nil || isFinal(err) {
		t.Errorf("got %v, want an error after which one tries again", err)
	}
	<-ended
}

// TestAHandshakeThatFailsLeavesNothing: neither a connection nor who reads it.
func TestAHandshakeThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	url, ended := startsWith(t, "GSSAPI")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := dial(ctx, []string{url}, nil); !isFinal(err) {
		t.Errorf("got %v, want that there is no way to sign in", err)
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the connection is open, want it closed")
	}
}
