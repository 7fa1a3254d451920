package bustest

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// RequireProduced fails the test unless a matching payload of type T was produced. It returns the
// first such message, with the payload in Value. A nil match accepts any. A payload counts once,
// however many consumers it has.
func RequireProduced[T bus.Payload](t testing.TB, from producedSource, match func(T) bool) *bus.Message {
	t.Helper()
	all, others := producedOf[T](t, "RequireProduced", from)
	for _, m := range all {
		if match == nil || match(m.Value.(T)) {
			return m
		}
	}
	t.Fatalf("bustest: RequireProduced[%T]: got none%s, want one; %s", *new(T), thatMatches(match != nil), produced(all, others))
	return nil
}

// RequireNotProduced fails the test if a matching payload of type T was produced. A nil match
// accepts any.
func RequireNotProduced[T bus.Payload](t testing.TB, from producedSource, match func(T) bool) {
	t.Helper()
	all, _ := producedOf[T](t, "RequireNotProduced", from)
	for _, m := range all {
		if match == nil || match(m.Value.(T)) {
			t.Fatalf("bustest: RequireNotProduced[%T]: got %+v (message %s), want none%s", *new(T), m.Value, m.ID, thatMatches(match != nil))
		}
	}
}

// Payloads returns every produced payload of type T, in order.
func Payloads[T bus.Payload](t testing.TB, from producedSource) []T {
	t.Helper()
	all, _ := producedOf[T](t, "Payloads", from)
	return store.Each(all, func(m *bus.Message) T { return m.Value.(T) })
}

// RequireScheduled fails the test unless there is a schedule with a matching payload of type T,
// and returns the first. A nil match accepts any.
func RequireScheduled[T bus.Payload](t testing.TB, from scheduledSource, match func(T) bool) schedule.Schedule {
	t.Helper()
	name := storedName[T](t, "RequireScheduled")
	schedules, codec, err := from.scheduled()
	if err != nil {
		t.Fatalf("bustest: RequireScheduled[%T]: %v", *new(T), err)
	}
	var others []string
	for _, s := range schedules {
		if s.PayloadType == name {
			if value := decode[T](t, "RequireScheduled", codec, s.Payload, 0); match == nil || match(value) {
				return s
			}
		}
		others = append(others, fmt.Sprintf("%s %s at %q %s", s.PayloadType, s.Payload, s.Expression, s.Zone))
	}
	t.Fatalf("bustest: RequireScheduled[%T]: got none%s, want one; schedules: %s", *new(T), thatMatches(match != nil), listed(others))
	return schedule.Schedule{}
}

// RequirePoisoned fails the test unless a message of the consumer with a matching payload of type
// T is poisoned. It returns the newest, with its reason and errors. A nil match accepts any.
func RequirePoisoned[T bus.Payload](t testing.TB, from poisonedSource, consumer string, match func(T) bool) poison.Message {
	t.Helper()
	name := storedName[T](t, "RequirePoisoned")
	messages, codec, err := from.poisoned()
	if err != nil {
		t.Fatalf("bustest: RequirePoisoned[%T]: %v", *new(T), err)
	}
	var others []string
	for _, m := range messages {
		if m.PayloadType == name && m.Consumer == consumer {
			if value := decode[T](t, "RequirePoisoned", codec, m.Payload, store.TakeSchema(maps.Clone(m.Headers))); match == nil || match(value) {
				return m
			}
		}
		others = append(others, fmt.Sprintf("%s %s of %s (%s)", m.PayloadType, m.Payload, m.Consumer, m.Reason))
	}
	t.Fatalf("bustest: RequirePoisoned[%T]: got none of consumer %q%s, want one; poisoned: %s",
		*new(T), consumer, thatMatches(match != nil), listed(others))
	return poison.Message{}
}

// producedOf returns the decoded messages of type T, and the texts of the others.
func producedOf[T bus.Payload](t testing.TB, operation string, from producedSource) (all []*bus.Message, others []string) {
	t.Helper()
	name := storedName[T](t, operation)
	messages, codec, err := from.produced()
	if err != nil {
		t.Fatalf("bustest: %s[%T]: %v", operation, *new(T), err)
	}
	for _, m := range messages {
		if m.PayloadType != name {
			others = append(others, fmt.Sprintf("%s %s", m.PayloadType, m.Payload))
			continue
		}
		found := *m
		if _, ok := found.Value.(T); !ok {
			found.Value = decode[T](t, operation, codec, found.Payload, found.Schema)
		}
		all = append(all, &found)
	}
	return all, others
}

// storedName returns T's stored name; T must be a struct.
func storedName[T bus.Payload](t testing.TB, operation string) string {
	t.Helper()
	if kind := reflect.TypeFor[T]().Kind(); kind == reflect.Pointer || kind == reflect.Interface {
		t.Fatalf("bustest: %s[%s]: a payload is a struct, not a %s", operation, reflect.TypeFor[T](), kind)
	}
	return (*new(T)).PayloadType()
}

// decode upcasts and decodes a payload. Schema 0 is the newest.
func decode[T bus.Payload](t testing.TB, operation string, codec bus.Codec, text []byte, schema int) (value T) {
	t.Helper()
	newest, err := access.Upcast(t.Context(), access.Upcasters(value), schema, text)
	if err == nil {
		err = codec.Decode(newest, &value)
	}
	if err != nil {
		t.Fatalf("bustest: %s[%T]: decode %s: %v", operation, value, text, err)
	}
	return value
}

func thatMatches(matched bool) string {
	if matched {
		return " that matches"
	}
	return ""
}

func produced(all []*bus.Message, others []string) string {
	texts := store.Each(all, func(m *bus.Message) string { return fmt.Sprintf("%s %+v", m.PayloadType, m.Value) })
	return "produced: " + listed(append(texts, others...))
}

// listed joins texts, limited in number and length.
func listed(texts []string) string {
	const most, longest = 10, 300
	if len(texts) == 0 {
		return "nothing"
	}
	var shown []string
	for _, text := range texts[:min(most, len(texts))] {
		if len(text) > longest {
			text = text[:longest] + "…"
		}
		shown = append(shown, text)
	}
	if more := len(texts) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(shown, "; ")
}
