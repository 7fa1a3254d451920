package adapter_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/internal/adapter"
)

var (
	errAway  = fmt.Errorf("away: %w", broker.ErrUnavailable) // It is immutable.
	errOther = errors.New("other")                           // It is immutable.
)

// fake is a broker that answers pings with what state says, and counts them.
type fake struct {
	state func(ctx context.Context) error
	pings atomic.Int32
	told  atomic.Int32
}

func (b *fake) watched() *adapter.Reconnect {
	r := adapter.NewReconnect(func(ctx context.Context) error {
		b.pings.Add(1)
		return b.state(ctx)
	})
	r.OnReconnect(func() { b.told.Add(1) })
	return r
}

func TestSubscribersAreNotifiedOnceTheBrokerIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(time.Minute)
		b := &fake{state: func(context.Context) error {
			if time.Now().Before(back) {
				return errAway
			}
			return nil
		}}
		r := b.watched()
		defer r.Close()
		r.Note(nil, errOther)
		<-time.After(time.Second)
		if n := b.pings.Load(); n != 0 {
			t.Errorf("a broker that was not missed: got %d pings, want none", n)
		}
		r.Note(nil, errAway)
		r.Note(errAway)
		<-time.After(time.Until(back) - time.Millisecond)
		if n := b.told.Load(); n != 0 {
			t.Errorf("while it is away: told %d times", n)
		}
		if err := r.Reason(); err != errAway {
			t.Errorf("while it is away: got reason %v, want %v", err, errAway)
		}
		<-time.After(time.Second)
		if n := b.told.Load(); n != 1 {
			t.Errorf("once it is back: told %d times, want once", n)
		}
		if err := r.Reason(); err != nil {
			t.Errorf("once it is back: got reason %v, want none", err)
		}
		pings := b.pings.Load()
		if <-time.After(time.Minute); b.pings.Load() != pings || pings > 60*4+2 {
			t.Errorf("got %d pings, and %d when it was back, want 4 a second and none", pings, b.pings.Load()-pings)
		}
	})
}

// TestABrokerThatAnswersIsNoNews: else a circuit would close that the next batch opens, again and again.
func TestABrokerThatAnswersIsNoNews(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes time.Duration
		told  int32
	}{"at once": {0, 0}, "after it hung": {3 * time.Second, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &fake{state: func(context.Context) error { <-time.After(c.takes); return nil }}
				r := b.watched()
				defer r.Close()
				r.Note(errAway)
				<-time.After(10 * time.Second)
				if got := b.told.Load(); got != c.told || b.pings.Load() != 1 {
					t.Errorf("got it told %d times after %d pings, want %d after one", got, b.pings.Load(), c.told)
				}
			})
		})
	}
}

func TestNoNotificationAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &fake{state: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }} // it hangs
		r := b.watched()
		r.Note(errAway)
		<-time.After(12 * time.Second)
		if n := b.pings.Load(); n != 3 {
			t.Errorf("a broker that hangs: got %d pings in 12 s, want 3", n)
		}
		r.Close()
		r.Note(errAway)
		<-time.After(time.Minute)
		if b.told.Load() != 0 || b.pings.Load() != 3 {
			t.Errorf("once closed: told %d times, %d pings, want none and no more", b.told.Load(), b.pings.Load())
		}
		ended := &fake{state: func(context.Context) error { return adapter.ErrClosed }}
		ended.watched().Note(errAway) // the bubble ends, so that this does
	})
}
