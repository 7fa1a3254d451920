package console

import (
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// pendingFilter is a filter of pending messages, as an address has it.
type pendingFilter struct {
	admin.Filter
	Older string // as it was typed
}

func (q *params) pending() pendingFilter {
	f := pendingFilter{Filter: admin.Filter{
		Consumer: q.text("consumer"), PayloadType: q.text("type"), InsertID: q.text("insert"), OrderingKey: q.text("key"),
		MessageID: q.uuid("message"), State: admin.State(q.text("state")),
		Crashed: q.flag("crashed"), Retrying: q.flag("retrying"), OlderThan: q.age("older"),
	}, Older: q.text("older")}
	if f.State != "" && !slices.Contains(f.States(), f.State) {
		q.fail("state must be ready, delayed or leased.")
	}
	return f
}

// pendingOf is a filter as an address has it.
func pendingOf(filter admin.Filter) pendingFilter {
	f := pendingFilter{Filter: filter}
	if filter.OlderThan > 0 {
		f.Older = filter.OlderThan.String()
	}
	return f
}

// States are the choices for State.
func (pendingFilter) States() []admin.State {
	return []admin.State{admin.Ready, admin.Delayed, admin.Leased}
}

// Fields are the filter as fields of a form.
func (f pendingFilter) Fields() url.Values {
	return linkTo("", "consumer", f.Consumer, "type", f.PayloadType, "insert", f.InsertID, "key", f.OrderingKey,
		"message", f.MessageID, "state", f.State, "crashed", yes(f.Crashed), "retrying", yes(f.Retrying), "older", f.Older).query
}

// Narrow reports whether the filter leaves anything out.
func (f pendingFilter) Narrow() bool { return len(f.Fields()) > 0 }

func yes(set bool) string {
	if set {
		return "yes"
	}
	return ""
}

// poisonedFilter is a filter of poisoned messages, as an address has it.
type poisonedFilter struct{ poison.Filter }

func (q *params) poisoned() poisonedFilter {
	return poisonedFilter{poison.Filter{
		Consumer: q.text("consumer"), Fingerprint: q.text("fingerprint"), PayloadType: q.text("type"), OrderingKey: q.text("key"),
		MessageID: q.uuid("message"), TraceID: q.traceID("trace"), Error: q.text("error"),
		PoisonedAfter: q.instant("since"), PoisonedBefore: q.instant("until"),
	}}
}

// Fields are the filter as fields of a form.
func (f poisonedFilter) Fields() url.Values {
	return linkTo("", "consumer", f.Consumer, "fingerprint", f.Fingerprint, "type", f.PayloadType, "key", f.OrderingKey,
		"message", f.MessageID, "trace", f.TraceID, "error", f.Error, "since", f.Since(), "until", f.Until()).query
}

// Of reports whether it is a group, as a whole.
func (f poisonedFilter) Of() bool { return f.Consumer != "" && f.Fingerprint != "" }

// Since is PoisonedAfter as a field of a form.
func (f poisonedFilter) Since() string { return instantText(f.PoisonedAfter) }

// Until is PoisonedBefore as a field of a form.
func (f poisonedFilter) Until() string { return instantText(f.PoisonedBefore) }

// consumedFilter is a filter of consumed messages, as an address has it.
type consumedFilter struct{ admin.ConsumedFilter }

func (q *params) consumed() consumedFilter {
	f := consumedFilter{admin.ConsumedFilter{
		Consumer: q.text("consumer"), PayloadType: q.text("type"), OrderingKey: q.text("key"), MessageID: q.uuid("message"),
		Outcome: q.text("outcome"), Version: q.text("version"), TraceID: q.traceID("trace"), Header: q.text("header"), Value: q.text("value"),
		FinishedAfter: q.instant("since"), FinishedBefore: q.instant("until"),
	}}
	if f.Outcome != "" && !slices.Contains(f.Outcomes(), f.Outcome) {
		q.fail("outcome must be done, discarded or expired.")
	}
	if f.Header == "" && f.Value != "" {
		q.fail("header is missing: a value needs a header name.")
	}
	return f
}

// Outcomes are the choices for Outcome.
func (consumedFilter) Outcomes() []string { return []string{"done", "discarded", "expired"} }

// Narrow reports whether the filter leaves anything out.
func (f consumedFilter) Narrow() bool { return !reflect.ValueOf(f.ConsumedFilter).IsZero() }

// Since is FinishedAfter as a field of a form.
func (f consumedFilter) Since() string { return instantText(f.FinishedAfter) }

// Until is FinishedBefore as a field of a form.
func (f consumedFilter) Until() string { return instantText(f.FinishedBefore) }

func instantText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.999999")
}
