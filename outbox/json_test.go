package outbox_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func TestAnswersAreFitForJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	id := uuid.UUID{15: 1}
	for _, test := range []struct {
		value any
		want  string
	}{
		{admin.Message{ID: 1, MessageID: id, Consumer: "c", PayloadType: "p", CreatedAt: at, AvailableAt: at, State: admin.Ready,
			Payload: []byte(`{"a":1}`)},
			`{"id":1,"message_id":"00000000-0000-0000-0000-000000000001","consumer":"c","payload_type":"p","created_at":"2026-01-02T03:04:05Z","available_at":"2026-01-02T03:04:05Z","attempts":0,"crashes":0,"state":"ready","payload":{"a":1}}`},
		{admin.Queue{Consumer: "c", Ready: 2, OldestReady: 1500 * time.Millisecond, PausedAt: at},
			`{"consumer":"c","ready":2,"delayed":0,"leased":0,"poisoned":0,"registered":false,"paused_at":"2026-01-02T03:04:05Z","oldest_ready_seconds":1.5}`},
		{admin.Queue{Consumer: "c", BlocksKeys: true, BlockedKeys: 3},
			`{"consumer":"c","ready":0,"delayed":0,"leased":0,"poisoned":0,"blocks_keys":true,"blocked_keys":3,"registered":false}`},
		{outbox.Stats{Limit: 8, Circuits: map[string]bool{"c": true},
			Limits: map[string]outbox.LimitStats{"l": {Slots: 2, Used: 1,
				Max: 3}}, RatesSpent: map[string]time.Duration{"c": 1500 * time.Millisecond}},
			`{"claims":0,"empty_claims":0,"claimed":0,"fenced":0,"recovered":0,"crashed":0,"abandoned":0,"crash_poisoned":0,"uncounted":0,"unkeyed":0,"running":0,"queued":0,"limit":8,"unsettled":0,"circuits":{"c":true},"limits":{"l":{"slots":2,"used":1,"max":3}},"rates_spent_seconds":{"c":1.5}}`},
		{poison.Message{ID: 1, MessageID: id, Payload: []byte("<a/>")},
			`{"id":1,"message_id":"00000000-0000-0000-0000-000000000001","consumer":"","payload_type":"","attempts":0,"crashes":0,"reason":"","payload":"\u003ca/\u003e"}`},
		{schedule.Schedule{ID: 1, Name: "n", Expression: "@daily", Zone: "UTC", NextFire: at},
			`{"id":1,"name":"n","payload_type":"","expression":"@daily","zone":"UTC","next_fire":"2026-01-02T03:04:05Z","paused":false}`},
		{bus.Health{Ready: true}, `{"ready":true}`},
		{bus.Health{LastClaim: at, Abandoned: []string{"c"}, Err: errors.New("gone")},
			`{"ready":false,"last_claim":"2026-01-02T03:04:05Z","abandoned":["c"],"error":"gone"}`},
		{admin.Filter{Consumer: "c", OrderingKey: "k", State: admin.Ready, OlderThan: 90 * time.Minute},
			`{"consumer":"c","key":"k","state":"ready","older_than":5400000000000}`},
		{admin.Filter{}, `{}`},
		{poison.Filter{IDs: []int64{1}, MessageID: id, PoisonedBefore: at, Error: "e"},
			`{"ids":[1],"message_id":"00000000-0000-0000-0000-000000000001","poisoned_before":"2026-01-02T03:04:05Z","error":"e"}`},
		{admin.Result{Changed: 1, Missing: []int64{2}}, `{"changed":1,"missing":[2]}`},
	} {
		got, err := json.Marshal(test.value)
		if err != nil || string(got) != test.want {
			t.Errorf("%T: got %s, %v, want %s", test.value, got, err, test.want)
		}
	}
}

// What is kept as JSON is a filter again.
func TestFiltersComeBack(t *testing.T) {
	t.Parallel()
	want := admin.Filter{Consumer: "c", PayloadType: "p", InsertID: "i", OrderingKey: "k", MessageID: uuid.UUID{15: 1},
		State: admin.Delayed, Crashed: true, Retrying: true, OlderThan: 90*time.Minute + 1}
	text, err := json.Marshal(want)
	var got admin.Filter
	if err = errors.Join(err, json.Unmarshal(text, &got)); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if err := json.Unmarshal([]byte(`{"older_than":"soon"}`), &got); err == nil {
		t.Error("an age that is none: got no error")
	}
}
