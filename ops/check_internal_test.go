package ops

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// TestDatabaseAddressesAreNotShown: findings and notes, which browsers show, do not have what a driver says of a database that it
// does not reach. That is inside, since no server can be had to fail between two looks.
func TestDatabaseAddressesAreNotShown(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, refused := net.Dial("tcp", address)
	if refused == nil || !strings.Contains(refused.Error(), address) {
		t.Fatalf("got error %v, want one with the address", refused)
	}
	refused = fmt.Errorf("failed to connect to `user=ada database=shop`: %w", refused)
	session := &Session{access{who: Principal{Name: "ada", Role: Administrator}}}
	for _, test := range []struct {
		err  error
		want string
	}{
		{refused, "The check could not run: the database does not answer."},
		{errors.New("permission denied for table consumer_messages"),
			"The check could not run: permission denied for table consumer_messages."},
	} {
		if got := session.told([]Finding{unseen(test.err)})[0].Text; got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
