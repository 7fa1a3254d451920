package measure

// What decides whether a measurement counts has to be right, and is not exported.

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
)

func TestTallyWantsEveryMessageOncePerConsumer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		ids  []int
		want string // part of the error
	}{
		{"all", []int{3, 1, 0, 2, 2, 0, 1, 3}, ""},
		{"one missing", []int{0, 1, 2, 3, 0, 1, 2}, "handled 7 messages with ids of sum 9, want 8 and 12"},
		{"one twice", []int{0, 1, 2, 3, 0, 1, 2, 3, 0}, "handled 9"},
		{"one instead of another", []int{0, 1, 2, 3, 0, 1, 2, 2}, "sum 11, want 8 and 12"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tally := newTally(4, 2)
			for _, id := range c.ids {
				tally.handle(contender.Signup{UserID: int64(id)})
			}
			err := tally.check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestTallyWaits(t *testing.T) {
	t.Parallel()
	reason := errors.New("the contender failed")
	ctx, fail := context.WithCancelCause(t.Context())
	tally := newTally(2, 1)
	tally.handle(contender.Signup{UserID: 0})
	fail(reason)
	if err := tally.wait(ctx); !errors.Is(err, reason) || !strings.Contains(err.Error(), "1 of 2") {
		t.Errorf("got %v, want 1 of 2 and %v", err, reason)
	}
	tally.handle(contender.Signup{UserID: 1})
	if err := tally.wait(t.Context()); err != nil {
		t.Errorf("with all handled: got %v, want nil", err)
	}
}

func TestTallyProgress(t *testing.T) {
	t.Parallel()
	start := time.Now().Add(-time.Second)
	tally := newTally(25, 1) // no multiple of ten
	for id := range 25 {
		tally.handle(contender.Signup{UserID: int64(id)})
	}
	rates := tally.progress(start)
	if len(rates) != 10 || rates[0] <= 0 || rates[0] > 2.5 {
		t.Errorf("got %v, want ten rates, the first at most 2.5 a second", rates)
	}
}

func TestBetweenSkipsTheWarmUpAndNeverGoesBelowZero(t *testing.T) {
	t.Parallel()
	commits, starts := make([]int64, warmUp+2), make([]int64, warmUp+2)
	commits[warmUp], starts[warmUp] = 1_000_000, 3_500_000
	commits[warmUp+1], starts[warmUp+1] = 2_000_000, 1_000_000
	if got := between(commits, starts); len(got) != 2 || got[0] != 2.5 || got[1] != 0 {
		t.Errorf("got %v, want [2.5 0]", got)
	}
}

func TestSignupsAreOfTheSizeAsked(t *testing.T) {
	t.Parallel()
	batch := contender.Signups(7, 3, 0)
	if len(batch) != 3 || batch[0].UserID != 7 || batch[2].UserID != 9 || batch[1].Padding != "" {
		t.Errorf("got %+v, want ids 7 to 9 without padding", batch)
	}
	for _, want := range []int{100, 1 << 10, 64 << 10} {
		text, err := json.Marshal(contender.Signups(1000, 1, want)[0])
		if got := len(text); err != nil || got < want*9/10 || got > want*11/10 {
			t.Errorf("got %d bytes and %v, want about %d", got, err, want)
		}
	}
}
