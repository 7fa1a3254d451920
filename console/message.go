package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// messagePage is one message: pending, poisoned, or consumed and kept.
type messagePage struct {
	admin.Message                           // what all have
	Poisoned      *operator.PoisonedMessage // nil: it is not poisoned
	Kept          *operator.ConsumedMessage // nil: it is not consumed
	Hidden        bool
	Content       string    // the payload as a text
	Tree          *jsonNode // nil: it is shown as a text
	Binary, Cut   bool
	Why           *admin.Explanation
	Past          []event
	Siblings      []admin.Message // of the same payload, for other consumers
	PoisonedKin   []poison.Message
	KeptKin       []admin.ConsumedMessage
	Trace         string // its address
	TraceID       string
	Owner         *admin.Process
	Editable      bool
}

const (
	seenTime     = 7 * 24 * time.Hour // processes are kept for as long
	crashesOfOne = 20
)

func (p *messagePage) read(q *params) { p.ID = q.needID("id") }

func (p *messagePage) load(r *request) error {
	if err := p.loadMessage(r); err != nil {
		return err
	}
	fleet, err := r.session.Processes(r.Context(), seenTime)
	if err != nil {
		return err
	}
	crashes, err := r.session.Messages().Crashes(r.Context(), p.ID, crashesOfOne)
	if err != nil {
		return err
	}
	if p.Poisoned == nil && p.Kept == nil {
		if p.Why, err = explain(r, p.ID); err != nil {
			return err
		}
	}
	if p.Claim != nil {
		p.Owner = processOf(fleet, p.Claim.Owner)
	}
	p.Past = p.past(crashes, fleet)
	if err := p.loadSiblings(r); err != nil {
		return err
	}
	p.TraceID = traceOf(p.Headers)
	if p.TraceID != "" && r.config.TraceURL != "" {
		p.Trace = strings.ReplaceAll(r.config.TraceURL, traceMark, p.TraceID)
	}
	p.Editable = p.Poisoned != nil && !p.Hidden && operator.May(r.session, ops.Edit, p.Consumer) == nil &&
		unredacted(r, p.ID, p.Payload) == nil
	return nil
}

func (p *messagePage) layout() layout {
	l := layout{title: fmt.Sprintf("Message %d", p.ID), tab: "messages"}
	if p.Poisoned != nil {
		l.tab = "poisoned"
	}
	return l
}

// loadMessage reads the message wherever it is.
func (p *messagePage) loadMessage(r *request) error {
	pending, err := r.session.Messages().Get(r.Context(), p.ID)
	switch {
	case err == nil:
		p.Message, p.Hidden = pending.Message, pending.Hidden
	case errors.Is(err, admin.ErrNotFound):
		m, err := r.session.Poisoned().Get(r.Context(), p.ID)
		if errors.Is(err, poison.ErrNotFound) {
			return p.loadKept(r)
		}
		if err != nil {
			return err
		}
		p.Poisoned, p.Hidden = &m, m.Hidden
		p.Message = admin.Message{
			ID: m.ID, MessageID: m.MessageID, Consumer: m.Consumer, PayloadType: m.PayloadType, InsertID: m.InsertID,
			OrderingKey: m.OrderingKey, CreatedAt: m.CreatedAt, AvailableAt: m.AvailableAt, Attempts: m.Attempts, Crashes: m.Crashes,
			State: admin.Poisoned, Payload: m.Payload, PayloadBytes: m.PayloadBytes, Headers: m.Headers, Errors: m.Errors,
			Steps: m.Steps,
		}
	default:
		return err
	}
	p.setContent()
	return nil
}

// loadKept reads the message if it is consumed and kept.
func (p *messagePage) loadKept(r *request) error {
	m, err := r.session.Consumed().Get(r.Context(), p.ID)
	if err != nil {
		return err
	}
	p.Kept, p.Hidden = &m, m.Hidden
	p.Message = admin.Message{
		ID: m.ID, MessageID: m.MessageID, Consumer: m.Consumer, PayloadType: m.PayloadType, OrderingKey: m.OrderingKey,
		CreatedAt: m.CreatedAt, State: admin.State(m.Outcome), Payload: m.Payload, PayloadBytes: m.PayloadBytes, Headers: m.Headers,
	}
	p.setContent()
	return nil
}

func (p *messagePage) setContent() {
	p.Content, p.Binary = readable(p.Payload)
	p.Tree, p.Cut = jsonTree(p.Payload), len(p.Payload) >= headBytes && p.PayloadBytes > len(p.Payload)
}

// loadSiblings reads the other consumers' messages of the payload: pending ones as far as the first part of a search
// finds them.
func (p *messagePage) loadSiblings(r *request) error {
	pending, _, err := r.session.Messages().Find(r.Context(), admin.Search{MessageID: p.MessageID}, admin.Cursor{})
	if err != nil {
		return err
	}
	p.Siblings = slices.DeleteFunc(pending, func(m admin.Message) bool { return m.ID == p.ID })
	poisoned, _, err := r.session.Poisoned().List(r.Context(), poison.Filter{MessageID: p.MessageID}, admin.Page{})
	if err != nil {
		return err
	}
	p.PoisonedKin = slices.DeleteFunc(poisoned, func(m poison.Message) bool { return m.ID == p.ID })
	kept, _, err := r.session.Consumed().List(r.Context(), admin.ConsumedFilter{MessageID: p.MessageID}, admin.Page{})
	p.KeptKin = slices.DeleteFunc(kept, func(m admin.ConsumedMessage) bool { return m.ID == p.ID })
	return err
}

// event is something that happened to a message.
type event struct {
	At    time.Time
	Text  string
	Tone  string
	Error string // of a run
	After string // how long after the event before
}

// past is what is known of the message, the first event first.
func (p *messagePage) past(crashes []operator.Crash, fleet []admin.Process) []event {
	all := []event{{At: p.CreatedAt, Text: "produced"}}
	if p.AvailableAt.After(p.CreatedAt) {
		all = append(all, event{At: p.AvailableAt, Text: "due"})
	}
	for _, e := range p.Errors {
		text := fmt.Sprintf("run %d failed", e.Attempt)
		if e.Uncounted {
			text = "a run failed, not counted"
		}
		all = append(all, event{At: e.At, Text: text, Tone: "bad", Error: e.Error})
	}
	for _, s := range p.Steps {
		text := fmt.Sprintf("step %q stored its result after %s", s.Name, s.Took.Round(time.Millisecond))
		all = append(all, event{At: s.StartedAt.Add(s.Took), Text: text, Tone: "good"})
	}
	for _, c := range crashes {
		text := "process lost"
		if lost := processOf(fleet, c.Owner); lost != nil {
			text = fmt.Sprintf("process %d of %s on %s was lost", lost.PID, lost.Program, lost.Host)
		}
		all = append(all, event{At: c.At, Text: text, Tone: "bad"})
	}
	if p.Claim != nil {
		all = append(all, event{At: p.Claim.ClaimedAt, Text: "claimed", Tone: "good"})
	}
	if p.Poisoned != nil {
		all = append(all, event{At: p.Poisoned.PoisonedAt, Text: "poisoned", Tone: "bad"})
	}
	if p.Kept != nil {
		if !p.Kept.StartedAt.IsZero() {
			all = append(all, event{At: p.Kept.StartedAt, Text: fmt.Sprintf("run %d started", max(p.Kept.Attempts, 1))})
		}
		all = append(all, event{At: p.Kept.FinishedAt, Text: p.Kept.Outcome, Tone: tone(p.Kept.Outcome), Error: p.Kept.Reason})
	}
	slices.SortStableFunc(all, func(a, b event) int { return a.At.Compare(b.At) })
	for i := 1; i < len(all); i++ {
		if gap := all[i].At.Sub(all[i-1].At); gap >= time.Millisecond {
			all[i].After = duration(gap)
		}
	}
	return all
}

// explain is why a message does not run, or nil if it is gone.
func explain(r *request, id int64) (*admin.Explanation, error) {
	why, err := r.session.Messages().Explain(r.Context(), id)
	if err != nil {
		return nil, ignoreGone(err)
	}
	return &why, nil
}

const headBytes = 60 << 10 // of a payload that may be cut: ops returns 64 KiB

// readable is a payload as a text: JSON with line breaks.
func readable(payload []byte) (text string, binary bool) {
	if !utf8.Valid(payload) {
		return "", true
	}
	var b bytes.Buffer
	if json.Indent(&b, payload, "", "  ") == nil {
		return b.String(), false
	}
	return string(payload), false
}

// traceOf is the trace id in the header traceparent, or empty.
func traceOf(headers map[string]string) string {
	parts := strings.Split(headers["traceparent"], "-")
	if len(parts) < 4 || !isTraceID(parts[1]) {
		return ""
	}
	return parts[1]
}

func isTraceID(text string) bool {
	return len(text) == 32 && strings.Trim(text, "0123456789abcdef") == ""
}
