//go:build unix

package measure

// What decides whether a measurement counts has to be right, and is not exported.

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/broker"
)

func TestMain(m *testing.M) {
	broker.Main()
	os.Exit(m.Run())
}

func TestAPlaceHasEachMessageOnce(t *testing.T) {
	t.Parallel()
	js, err := broker.StartJetStream(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := js.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct {
		name string
		ids  []int
		want string // part of the error
	}{
		{"all", []int{3, 1, 0, 2}, ""},
		{"one missing", []int{0, 1, 3}, "handled 3 messages with ids of sum 4, want 4 and 6"},
		{"one twice", []int{0, 1, 2, 3, 0}, "handled 5"},
		{"one instead of another", []int{0, 1, 2, 2}, "sum 5, want 4 and 6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			place, err := js.Place(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			err = js.Fill(t.Context(), place.Address, len(c.ids), func(i int) *nats.Msg {
				m, err := event(c.ids[i])
				if err != nil {
					t.Error(err)
				}
				m.Header.Del(nats.MsgIdHdr) // the stream would drop what comes twice
				return m
			})
			if err != nil {
				t.Fatal(err)
			}
			at, err := js.Subscription(t.Context(), place.Address, "all")
			if err != nil {
				t.Fatal(err)
			}
			if n, err := js.Waiting(t.Context(), at); n != len(c.ids) || err != nil {
				t.Errorf("waiting: got %d and %v, want %d", n, err, len(c.ids))
			}
			err = (&run{ctx: t.Context()}).checkPlace(place, newTally(4, 1))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err := place.Drop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheOrderOfAStream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		positions string // of shard 0, but for those with an s
		want      string
	}{
		{"1 2 3 4", ""},
		{"3s 1 4s 2", ""},
		{"1 2 4", "3 events are in the stream, want 4"},
		{"1 2 2 3 4", "event 2 is there twice"},
		{"1 3 2 4", "event 2 is behind 3"},
		{"1 2 3 4 5", "event 5 is there twice, or was never appended"},
	} {
		o := order{newest: map[string]int{}, seen: make([]bool, 4)}
		var err error
		for _, position := range strings.Fields(c.positions) {
			number, other := strings.CutSuffix(position, "s")
			record := broker.Record{Subject: fmt.Sprint(other), Headers: map[string][]string{"ce-sequence": {number}}}
			if err == nil {
				err = o.see(record)
			}
		}
		if err == nil {
			err = o.check()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.positions, err, c.want)
		}
	}
}

func TestEventsAreOfTheSizeAsked(t *testing.T) {
	t.Parallel()
	for _, i := range []int{0, 99_999} {
		m, err := event(i)
		if n := len(m.Data); err != nil || n < RelaySize*9/10 || n > RelaySize*11/10 {
			t.Errorf("event %d: got %d bytes and %v, want about %d", i, n, err, RelaySize)
		}
		if ids := m.Header[nats.MsgIdHdr]; !slices.Equal(ids, m.Header["ce-id"]) {
			t.Errorf("event %d: got ids %q and %q, want the same", i, ids, m.Header["ce-id"])
		}
	}
}
