package adapter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/internal/adapter"
)

func TestInOrder(t *testing.T) {
	t.Parallel()
	errBad := errors.New("bad")
	for _, test := range []struct {
		name    string
		timeout time.Duration // 0 for none
		takes   time.Duration // a record
		bad     int           // which fails; -1 for none
		want    int
		err     error
		sent    int
	}{
		{"all", time.Second, 0, -1, 10, nil, 10},
		{"one fails", time.Second, 0, 4, 4, errBad, 5},
		{"the first fails", time.Second, 0, 0, 0, errBad, 1},
		{"slow, without an end", 0, time.Second, -1, 10, nil, 10},
		{"slow: half of the time", time.Second, 100 * time.Millisecond, -1, 6, nil, 6},
		{"slower than half of the time", time.Second, 900 * time.Millisecond, -1, 1, nil, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if test.timeout > 0 {
					ctx, cancel = context.WithTimeout(ctx, test.timeout)
				}
				defer cancel()
				sent := 0
				n, err := adapter.InOrder(ctx, make([]broker.Record, 10), func(broker.Record) error {
					<-time.After(test.takes)
					if sent++; sent == test.bad+1 {
						return errBad
					}
					return nil
				})
				if n != test.want || err != test.err || sent != test.sent {
					t.Errorf("got %d, %v, and %d sent, want %d, %v and %d", n, err, sent, test.want, test.err, test.sent)
				}
			})
		})
	}
}
