package projection

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestWhatAFunctionIsNotToBlameFor looks at what its errors say, which on a database only
// a network at the right moment would provoke.
func TestWhatAFunctionIsNotToBlameFor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"a reset", syscall.ECONNRESET, true},
		{"a deadline that the connection keeps", os.ErrDeadlineExceeded, false},
		{"a deadline of the context", context.DeadlineExceeded, false},
	} {
		if got := innocent(fmt.Errorf("query: %w", &net.OpError{Op: "read", Net: "tcp", Err: test.err})); got != test.want {
			t.Errorf("%s: got innocent %t, want %t", test.name, got, test.want)
		}
	}
}
