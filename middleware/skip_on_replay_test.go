package middleware_test

import (
	"context"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

func TestSkipOnReplay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		consumers []string
		mode      bus.Mode
		runs      bool
	}{
		{"live, all", nil, bus.Live, true},
		{"catching up, all", nil, bus.CatchUp, true},
		{"replay, all", nil, bus.Replay, false},
		{"replay, named", []string{"other", "mail"}, bus.Replay, false},
		{"replay, not named", []string{"other"}, bus.Replay, true},
	} {
		ran := false
		h := middleware.SkipOnReplay(c.consumers...)(func(context.Context, *bus.Message) error { ran = true; return nil })
		if err := h(t.Context(), &bus.Message{Consumer: "mail", Mode: c.mode}); err != nil || ran != c.runs {
			t.Errorf("%s: got run %t and error %v, want %t and none", c.name, ran, err, c.runs)
		}
	}
}
