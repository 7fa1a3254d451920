package poison_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// fail writes what a process would have told, so long ago.
func fail(a *testapp.App, consumer, fingerprint string, ago time.Duration) {
	a.Exec("INSERT INTO message_failures (consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id) VALUES (?, ?, 't', ?, 3, "+
		testapp.In(a.DB, -24*time.Hour)+", "+testapp.In(a.DB, -ago)+", 'v1', 1)", consumer, fingerprint, consumer+" "+fingerprint)
}

func said(groups []poison.Group) string {
	var said []string
	for _, g := range groups {
		sample := "-"
		if g.Failure != nil {
			sample = g.Failure.Sample + " since " + g.Failure.FirstVersion
		}
		said = append(said, fmt.Sprintf("%s/%s %d: %s", g.Consumer, g.Fingerprint, g.Messages, sample))
	}
	return strings.Join(said, "\n")
}

// TestGroups: they are listed by when they failed last, or were poisoned last where nothing else is known.
func TestGroups(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 20, testapp.Counting("c", &n))
		ctx := t.Context()
		if groups, more, err := s.Groups(ctx, db, "nobody"); len(groups) != 0 || more || err != nil {
			t.Errorf("of nobody: got %v, %t, %v, want nothing", groups, more, err)
		}
		a.Exec("UPDATE poisoned_messages SET fingerprint = '1a' WHERE id <= 3")
		a.Exec("UPDATE poisoned_messages SET fingerprint = '1b' WHERE id BETWEEN 4 AND 5")
		a.Exec("UPDATE poisoned_messages SET fingerprint = 'crash', poisoned_at = " + testapp.In(db, -time.Hour) + " WHERE id BETWEEN 6 AND 9")
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'd' WHERE id >= 15")
		a.Exec("UPDATE poisoned_messages SET fingerprint = '1a' WHERE id IN (17, 19)")
		a.Exec("UPDATE poisoned_messages SET poisoned_at = " + testapp.In(db, -10*time.Minute) + " WHERE id BETWEEN 10 AND 14")
		fail(a, "c", "1a", 30*time.Minute)
		fail(a, "c", "1b", 5*time.Minute)
		fail(a, "d", "1a", 2*time.Hour)
		fail(a, "d", "1b", time.Second) // nothing of it is poisoned
		const c = "c/1b 2: c 1b since v1\nc/unclassified 5: -\nc/1a 3: c 1a since v1\nc/crash 4: -"
		for consumer, want := range map[string]string{"": "d/unclassified 4: -\n" + c + "\nd/1a 2: d 1a since v1", "c": c,
			"d": "d/unclassified 4: -\nd/1a 2: d 1a since v1"} {
			groups, more, err := s.Groups(ctx, db, consumer)
			if got := said(groups); got != want || more || err != nil {
				t.Errorf("of %q: got\n%s\nmore %t, error %v, want\n%s", consumer, got, more, err, want)
			}
			for _, g := range groups {
				filter := poison.Filter{Consumer: g.Consumer, Fingerprint: g.Fingerprint}
				if got := testapp.Must[int](t)(s.Count(ctx, db, filter)); got != g.Messages {
					t.Errorf("%s/%s: got %d messages by that filter, want %d", g.Consumer, g.Fingerprint, got, g.Messages)
				}
			}
		}
		groups, _, _ := s.Groups(ctx, db, "c")
		if g := groups[3]; g.LastAt.After(time.Now().Add(-50*time.Minute)) || g.FirstAt.IsZero() {
			t.Errorf("crashed: got first %s and last %s, want an hour ago", g.FirstAt, g.LastAt)
		}
	})
}

// TestManyGroups: there may be more groups than are looked for, or shown.
func TestManyGroups(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 600, testapp.Counting("c", &n))
		shown := func(want int, wantMore bool) {
			t.Helper()
			groups, more, err := s.Groups(t.Context(), db, "")
			if err != nil || len(groups) != want || more != wantMore || groups[0].Messages == 0 {
				t.Errorf("got %d groups, more %t, error %v, want %d, %t", len(groups), more, err, want, wantMore)
			}
		}
		a.Exec("UPDATE poisoned_messages SET fingerprint = CONCAT('1', id % 50)")
		shown(50, false)
		a.Exec("UPDATE poisoned_messages SET fingerprint = NULL WHERE id % 50 = 7 AND id > 50")
		shown(50, true)
		a.Exec("UPDATE poisoned_messages SET fingerprint = CONCAT('1', id)")
		shown(50, true)
		a.Exec("UPDATE poisoned_messages SET consumer_type = CONCAT('c', id), fingerprint = '1a'")
		shown(50, true)
	})
}

func TestPreview(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 10, testapp.Counting("c", &n, bus.Aliases("former")))
		ctx := t.Context()
		if p, err := s.Preview(ctx, db, poison.Filter{Consumer: "nobody"}, 5); err != nil || !reflect.DeepEqual(p, poison.Preview{}) {
			t.Errorf("of nothing: got %+v, %v, want nothing", p, err)
		}
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'former' WHERE id >= 7")
		a.Exec("UPDATE poisoned_messages SET payload_type = 'other', poisoned_at = " + testapp.In(db, -time.Hour) + " WHERE id = 9")
		a.Exec("UPDATE poisoned_messages SET insert_id = CONCAT('k', id) WHERE id IN (1, 2, 8, 9)")
		a.Produce(order{}, outbox.InsertID("k2"))
		a.Produce(order{}, outbox.InsertID("k8"))
		a.Exec("UPDATE poisoned_messages SET insert_id = 'k2', consumer_type = 'stranger' WHERE id = 10") // of another consumer
		p := testapp.Must[poison.Preview](t)(s.Preview(ctx, db, poison.Filter{}, 100))
		said := func(p poison.Preview) string {
			text := fmt.Sprintf("up to %d, more %t: %d, %d conflicts, %d untaken", p.UpTo, p.More, p.Messages, p.Conflicts, p.Unhandled)
			for _, k := range p.Kinds {
				text += fmt.Sprintf("; %s %s: %d, %d, %d", k.Consumer, k.PayloadType, k.Messages, k.Conflicts, k.Unhandled)
			}
			return text
		}
		const all = "up to 10, more false: 10, 2 conflicts, 0 untaken; c order.placed: 6, 1, 0; former order.placed: 2, 1, 0; former other: 1, 0, 0; stranger order.placed: 1, 0, 0"
		if got := said(p); got != all {
			t.Errorf("got\n%s\nwant\n%s", got, all)
		}
		if age := p.At.Sub(p.Oldest); age < 50*time.Minute || p.Newest.After(p.At) || p.At.Sub(p.Newest) > 50*time.Minute {
			t.Errorf("got %s to %s at %s, want the oldest an hour before", p.Oldest, p.Newest, p.At)
		}
		if text := string(testapp.Must[[]byte](t)(json.Marshal(p))); !strings.Contains(text, `"up_to":10,`) ||
			!strings.Contains(text, `"messages":10,`) {
			t.Errorf("as JSON: got %s", text)
		}
		const first = "up to 10, more true: 7, 1 conflicts, 0 untaken; c order.placed: 6, 1, 0; former order.placed: 1, 0, 0"
		if got := said(testapp.Must[poison.Preview](t)(s.Preview(ctx, db, poison.Filter{}, 7))); got != first {
			t.Errorf("the first: got\n%s\nwant\n%s", got, first)
		}
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "a process is there", func() bool {
			fleet, err := a.Admin().Processes(ctx, db, time.Hour)
			return err == nil && len(fleet) > 0
		})
		const untaken = "up to 9, more false: 3, 0 conflicts, 1 untaken; c order.placed: 2, 0, 0; former other: 1, 0, 1"
		if got := said(testapp.Must[poison.Preview](t)(s.Preview(ctx, db, poison.Filter{IDs: []int64{3, 4, 9}}, 7))); got != untaken {
			t.Errorf("with a process: got\n%s\nwant\n%s", got, untaken)
		}
		r.MustStop()
		const nobody = "up to 9, more false: 3, 0 conflicts, 3 untaken; c order.placed: 2, 0, 2; former other: 1, 0, 1"
		// The last report of a process has little time; without it, the process counts as lost after 45 s.
		testapp.Eventually(t, "once it has stopped, nothing of it is taken", func() bool {
			return said(testapp.Must[poison.Preview](t)(s.Preview(ctx, db, poison.Filter{IDs: []int64{3, 4, 9}}, 7))) == nobody
		})
	})
}

func TestExport(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 520, testapp.Counting("c", &n))
		large := strings.Repeat("x", 1<<20-100)
		a.Exec("UPDATE poisoned_messages SET payload = ? WHERE id BETWEEN 20 AND 39", `{"id":"`+large+`"}`)
		var most, page int64
		hooked := db.WithQueryHook(testapp.QueryHook(func(context.Context, string) { most, page = max(most, page), 0 }))
		next := int64(1)
		exported, err := s.Export(t.Context(), hooked, poison.Filter{Consumer: "c"}, func(m poison.Message) error {
			if m.ID != next || len(m.Payload) == 0 || len(m.Errors) != 1 || m.PayloadBytes != len(m.Payload) {
				t.Errorf("got message %d of %d bytes, want %d, whole", m.ID, len(m.Payload), next)
			}
			page += int64(len(m.Payload))
			next++
			return nil
		})
		if err != nil || exported != 520 || most > 8<<20 || most < 6<<20 {
			t.Errorf("got %d, error %v, up to %d bytes at a time, want 520 and up to 8 MiB", exported, err, most)
		}
		enough := errors.New("enough")
		if exported, err = s.Export(t.Context(), db, poison.Filter{}, func(m poison.Message) error {
			if m.ID == 3 {
				return enough
			}
			return nil
		}); !errors.Is(err, enough) || exported != 2 {
			t.Errorf("stopped: got %d and %v, want 2 and the error", exported, err)
		}
	})
}
