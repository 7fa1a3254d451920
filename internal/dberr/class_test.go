package dberr_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// TestADeadlineIsNoLostConnection, however a driver says so: pgdriver has the connection
// keep it.
func TestADeadlineIsNoLostConnection(t *testing.T) {
	t.Parallel()
	timeout := func(op string, err error) error {
		return fmt.Errorf("query: %w", &net.OpError{Op: op, Net: "tcp", Err: err})
	}
	tests := []struct {
		name string
		err  error
		want dberr.Class
	}{
		{"read", timeout("read", os.ErrDeadlineExceeded), dberr.Timeout},
		{"write", timeout("write", os.ErrDeadlineExceeded), dberr.Timeout},
		{"of a context", context.DeadlineExceeded, dberr.Timeout},
		{"dial", timeout("dial", os.ErrDeadlineExceeded), dberr.Unavailable},
		{"reset", timeout("read", os.ErrClosed), dberr.Unavailable},
	}
	for _, test := range tests {
		if got := dberr.ClassOf(test.err); got != test.want || !dberr.IsConnectionDoubtful(test.err) {
			t.Errorf("%s: got %s, doubtful %t, want %s, and so", test.name, got, dberr.IsConnectionDoubtful(test.err), test.want)
		}
	}
}

// answer is an error of PostgreSQL, as pgx has them.
type answer string

func (a answer) Error() string    { return "SQLSTATE " + string(a) }
func (a answer) SQLState() string { return string(a) }

func TestATransactionTimeoutCostsTheConnection(t *testing.T) {
	t.Parallel()
	for state, doubtful := range map[string]bool{"25P04": true, "57014": false} {
		err := fmt.Errorf("query: %w", answer(state))
		if got := dberr.ClassOf(err); got != dberr.Timeout || dberr.IsConnectionDoubtful(err) != doubtful {
			t.Errorf("%s: got %s, connection doubtful %t, want %s, %t", state, got, dberr.IsConnectionDoubtful(err), dberr.Timeout, doubtful)
		}
	}
}
