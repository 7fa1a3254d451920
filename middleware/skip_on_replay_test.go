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
		event     *bus.Event
		runs      bool
	}{
		{"live, all", nil, nil, true},
		{"catching up, all", nil, &bus.Event{Backlog: true}, true},
		{"replay, all", nil, &bus.Event{Replay: true}, false},
		{"replay, named", []string{"other", "mail"}, &bus.Event{Replay: true}, false},
		{"replay, not named", []string{"other"}, &bus.Event{Replay: true}, true},
	} {
		ran := false
		h := middleware.SkipOnReplay(c.consumers...)(func(context.Context, *bus.Message) error { ran = true; return nil })
		if err := h(t.Context(), &bus.Message{Consumer: "mail", Event: c.event}); err != nil || ran != c.runs {
			t.Errorf("%s: got run %t and error %v, want %t and none", c.name, ran, err, c.runs)
		}
	}
}
