package overview

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Internal: what is made anew, and when, is not to be seen from outside without a database.

type summary = Overview[struct{}, struct{}]

// TestOverviewAfterAChange: an overview that was begun before a change is not shown after it.
func TestOverviewAfterAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o Cache[struct{}, struct{}]
		made := 0
		slow := make(chan struct{})
		remake := func(context.Context, summary) (summary, error) {
			made++
			if made == 2 {
				<-slow
			}
			return summary{At: time.Now()}, nil
		}
		look := func() {
			if _, err := o.Get(t.Context(), remake); err != nil {
				t.Error(err)
			}
		}
		look()
		look()
		if made != 1 {
			t.Fatalf("two looks at once: made %d, want 1", made)
		}
		o.Change()
		first, second := make(chan struct{}), make(chan struct{})
		go func() { defer close(first); look() }()
		synctest.Wait() // the second one is being made
		o.Change()
		go func() { defer close(second); look() }()
		synctest.Wait()
		select {
		case <-second:
			t.Error("who looks after a change was shown what was begun before it")
		default:
		}
		close(slow)
		<-first
		<-second
		if look(); made != 3 {
			t.Errorf("made %d, want 3: one after each change", made)
		}
	})
}

// TestOverviewWhoseMakerLeaves: somebody who goes away makes nothing late for the others.
func TestOverviewWhoseMakerLeaves(t *testing.T) {
	t.Parallel()
	var o Cache[struct{}, struct{}]
	gone, cancel := context.WithCancel(t.Context())
	fail := errors.New("no answer")
	first := func(context.Context, summary) (summary, error) { return summary{At: time.Now()}, nil }
	if _, err := o.Get(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	o.Change()
	cancel()
	if _, err := o.Get(gone, func(context.Context, summary) (summary, error) { return summary{}, fail }); err == nil {
		t.Error("who has gone was given an overview")
	}
	if last, err := o.Get(t.Context(), first); err != nil || last.At.IsZero() {
		t.Errorf("the next one: got %+v, error %v", last, err)
	}
	if last, due, known := o.Known(); !known || due || last.At.IsZero() {
		t.Errorf("at a glance: got due %t, known %t, at %s", due, known, last.At)
	}
	o.until = time.Now().Add(-time.Second)
	if _, due, known := o.Known(); !known || !due {
		t.Errorf("at a glance when it is time for another: got due %t, known %t", due, known)
	}
	o.until = time.Now().Add(-time.Minute)
	if _, _, known := o.Known(); known {
		t.Error("at a glance after a minute: an old overview is known")
	}
	o.until = time.Now().Add(time.Minute)
	o.Change()
	if _, _, known := o.Known(); known {
		t.Error("at a glance after a change: an overview from before is known")
	}
	if last, due := o.Last(); last.At.IsZero() || !due {
		t.Errorf("the last one after a change: got %s, due %t", last.At, due)
	}
	var empty Cache[struct{}, struct{}]
	if last, due := empty.Last(); !last.At.IsZero() || !due {
		t.Errorf("before the first one: got %s, due %t", last.At, due)
	}
}

// TestOverviewOfASlowDatabaseIsNotOld: it costs the database a fiftieth of its time, but is made anew every half minute.
func TestOverviewOfASlowDatabaseIsNotOld(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		10 * time.Millisecond: 2 * time.Second, 100 * time.Millisecond: 5 * time.Second, 3 * time.Second: 30 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			var o Cache[struct{}, struct{}]
			remake := func(context.Context, summary) (summary, error) {
				at := time.Now()
				<-time.After(took)
				return summary{At: at.Add(took)}, nil
			}
			first, err := o.Get(t.Context(), remake)
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(want - time.Millisecond)
			if again, err := o.Get(t.Context(), remake); err != nil || !again.At.Equal(first.At) {
				t.Errorf("took %s: got one of %s after less than %s, want that of %s", took, again.At, want, first.At)
			}
			<-time.After(time.Millisecond)
			if again, err := o.Get(t.Context(), remake); err != nil || again.At.Equal(first.At) {
				t.Errorf("took %s: got the same after %s, want a new one", took, want)
			}
		})
	}
}

// TestOverviewWhoseMakerPanics: the next caller makes an overview, if a server has recovered the panic.
func TestOverviewWhoseMakerPanics(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"the first": false, "a later one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var o Cache[struct{}, struct{}]
				remake := func(context.Context, summary) (summary, error) { return summary{At: time.Now()}, nil }
				if before {
					if _, err := o.Get(ctx, remake); err != nil {
						t.Fatal(err)
					}
					<-time.After(time.Minute) // it has expired
				}
				func() {
					defer func() {
						if recover() == nil {
							t.Error("the panic is hidden")
						}
					}()
					_, _ = o.Get(ctx, func(context.Context, summary) (summary, error) { panic("in a query hook") })
				}()
				if made, err := o.Get(ctx, remake); err != nil || !made.At.Equal(time.Now()) {
					t.Errorf("got an overview of %s and error %v, want a new one", made.At, err)
				}
			})
		})
	}
}
