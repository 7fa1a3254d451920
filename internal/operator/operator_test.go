package operator_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

var errNoServer = errors.New("no server") // immutable

// refusing is a database that refuses connections.
type refusing struct{}

func (refusing) Connect(context.Context) (driver.Conn, error) { return nil, errNoServer }
func (refusing) Driver() driver.Driver                        { return nil }

func service(t *testing.T) *ops.Service {
	t.Helper()
	registry, err := bus.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	db := bun.NewDB(sql.OpenDB(refusing{}), pgdialect.New())
	t.Cleanup(func() { _ = db.Close() })
	s, err := ops.New(ops.Config{DB: db, Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSessionAsksTheService calls functions that package ops provides: permissions first, then the database.
func TestSessionAsksTheService(t *testing.T) {
	t.Parallel()
	for role, want := range map[ops.Role]error{ops.None: ops.ErrForbidden, ops.Administrator: errNoServer} {
		s := operator.As(service(t), ops.Principal{Name: "ada", Role: role})
		_, overview := s.Overview(t.Context())
		_, _, listed := s.Messages().List(t.Context(), admin.Filter{}, admin.Page{})
		_, minutes := s.Consumers().Minutes(t.Context(), time.Hour)
		_, discarded := s.Poisoned().Discard(t.Context(), "a test", 1)
		_, checked := s.Check(t.Context())
		for what, err := range map[string]error{"overview": overview, "list": listed, "minutes": minutes, "discard": discarded,
			"pause": s.Consumers().Pause(t.Context(), "c", "a test"), "check": checked} {
			if !errors.Is(err, want) {
				t.Errorf("%s as %s: got error %v, want %v", what, role, err, want)
			}
		}
	}
}

// TestRunOnlyWantsAnID reaches the runner of package ops.
func TestRunOnlyWantsAnID(t *testing.T) {
	t.Parallel()
	r, err := ops.NewRunner(service(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.RunOnly(t.Context(), r, 0); !errors.Is(err, ops.ErrNotFound) {
		t.Errorf("got error %v, want ErrNotFound", err)
	}
}

// TestJSONHasBothParts: the fields of the embedded type and those beside it are in one object.
func TestJSONHasBothParts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		value  any
		beside string
	}{
		"message":  {operator.Message{Message: admin.Message{ID: 7}, Hidden: true}, "hidden"},
		"poisoned": {operator.PoisonedMessage{Message: poison.Message{ID: 7}, Hidden: true}, "hidden"},
		"schedule": {operator.Schedule{Schedule: schedule.Schedule{ID: 7}, Next: []time.Time{time.Now()}}, "next"},
	} {
		text, err := json.Marshal(test.value)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil || fields["id"] != 7.0 || fields[test.beside] == nil {
			t.Errorf("%s: got %s, error %v, want id and %s", name, text, err, test.beside)
		}
	}
}

// TestPayloadsAreReadableInJSON: as they are if they are JSON, as a text otherwise.
func TestPayloadsAreReadableInJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		value any
		want  string
	}{
		{operator.Message{Message: admin.Message{ID: 1, CreatedAt: at, State: admin.Ready, Payload: []byte(`{"a":1}`)}, Hidden: true},
			`{"id":1,"message_id":"00000000-0000-0000-0000-000000000000","consumer":"","payload_type":"",` +
				`"created_at":"2026-01-02T03:04:05Z","attempts":0,"crashes":0,"state":"ready","payload":{"a":1},"hidden":true}`},
		{operator.PoisonedMessage{Message: poison.Message{ID: 1, Payload: []byte("<a/>")}},
			`{"id":1,"message_id":"00000000-0000-0000-0000-000000000000","consumer":"","payload_type":"",` +
				`"attempts":0,"crashes":0,"reason":"","payload":"\u003ca/\u003e"}`},
		{operator.Schedule{Schedule: schedule.Schedule{ID: 1, Expression: "@daily", NextFire: at, Payload: []byte(`[1]`)}, Next: []time.Time{at}},
			`{"id":1,"payload_type":"","expression":"@daily","zone":"","next_fire":"2026-01-02T03:04:05Z","paused":false,` +
				`"payload":[1],"next":["2026-01-02T03:04:05Z"]}`},
		{admin.Message{ID: 1, Payload: []byte(`{"a": 1}`)}, `{"id":1,"message_id":"00000000-0000-0000-0000-000000000000",` +
			`"consumer":"","payload_type":"","attempts":0,"crashes":0,"state":"","payload":{"a":1}}`},
		{&poison.Message{ID: 1, Payload: []byte("\xff{")}, `{"id":1,"message_id":"00000000-0000-0000-0000-000000000000",` +
			`"consumer":"","payload_type":"","attempts":0,"crashes":0,"reason":"","payload":"\ufffd{"}`},
		{schedule.Schedule{ID: 1}, `{"id":1,"payload_type":"","expression":"","zone":"","paused":false}`},
	} {
		got, err := json.Marshal(test.value)
		if err != nil || string(got) != test.want {
			t.Errorf("%T: got %s, %v, want %s", test.value, got, err, test.want)
		}
	}
}
