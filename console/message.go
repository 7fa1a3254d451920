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
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// messagePage is one message, pending or poisoned.
type messagePage struct {
	admin.Message               // what both have
	Poisoned      *ops.Poisoned // nil: it is pending
	Hidden        bool
	Content       string // the payload, to be read
	Binary, Cut   bool
	Why           *admin.Explanation
	Pause         *admin.Queue // whose pause it waits for
	Past          []happened
	Siblings      []admin.Message // other consumers' messages of the payload
	PoisonedKin   []poison.Message
	Trace         string // where it is shown
	TraceID       string
	Owner         *admin.Process
	Editable      bool
}

// happened is something that has happened to a message.
type happened struct {
	At   time.Time
	Text string
	More string // of an error
	Tone string
}

const seenTime = 7 * 24 * time.Hour // for as long processes are kept

func (v *request) message() (page, error) {
	a := v.asks()
	id := a.needID("id")
	if err := a.err(); err != nil {
		return page{}, err
	}
	data, err := v.readMessage(id)
	if err != nil {
		return page{}, err
	}
	fleet, err := v.session.Processes(v.ctx(), seenTime)
	if err != nil {
		return page{}, err
	}
	crashes, err := v.session.Messages().Crashes(v.ctx(), id, 20)
	if err != nil {
		return page{}, err
	}
	if data.Poisoned == nil {
		why, err := v.session.Messages().Explain(v.ctx(), id)
		if err == nil {
			data.Why = &why
		}
		if err := ignoreGone(err); err != nil {
			return page{}, err
		}
		if data.Why != nil && data.Why.Reason == admin.Paused {
			if data.Pause, err = v.pauseOf(data.Consumer); err != nil {
				return page{}, err
			}
		}
	}
	if data.Claim != nil {
		data.Owner = processOf(fleet, data.Claim.Owner)
	}
	data.Past = past(data, crashes, fleet)
	if err := v.kin(&data); err != nil {
		return page{}, err
	}
	data.TraceID = traceOf(data.Headers)
	if data.TraceID != "" && v.config.TraceURL != "" {
		data.Trace = strings.ReplaceAll(v.config.TraceURL, traceMark, data.TraceID)
	}
	data.Editable = data.Poisoned != nil && !data.Hidden && v.May(ops.Edit, data.Consumer) && v.unredacted(id, data.Payload) == nil
	tab := "messages"
	if data.Poisoned != nil {
		tab = "poisoned"
	}
	return page{Title: fmt.Sprintf("Message %d", id), Tab: tab, Data: data}, nil
}

// pauseOf is the queue of a consumer that is paused, or nil.
func (v *request) pauseOf(consumer string) (*admin.Queue, error) {
	o, err := v.glance()
	if i := slices.IndexFunc(o.Queues, func(q admin.Queue) bool { return q.Consumer == consumer && !q.PausedAt.IsZero() }); i >= 0 {
		return &o.Queues[i], err
	}
	return nil, err
}

// readMessage reads a message wherever it is.
func (v *request) readMessage(id int64) (data messagePage, err error) {
	m, err := v.session.Messages().Get(v.ctx(), id)
	switch {
	case err == nil:
		data = messagePage{Message: m.Message, Hidden: m.Hidden}
	case errors.Is(err, admin.ErrNotFound):
		p, err := v.session.Poisoned().Get(v.ctx(), id)
		if err != nil {
			return data, err
		}
		data = messagePage{Poisoned: &p, Hidden: p.Hidden, Message: admin.Message{
			ID: p.ID, MessageID: p.MessageID, Consumer: p.Consumer, PayloadType: p.PayloadType, InsertID: p.InsertID, OrderingKey: p.OrderingKey, CreatedAt: p.CreatedAt, AvailableAt: p.AvailableAt,
			Attempts: p.Attempts, Crashes: p.Crashes, State: admin.Poisoned, Payload: p.Payload, PayloadBytes: p.PayloadBytes, Headers: p.Headers, Errors: p.Errors,
		}}
	default:
		return data, err
	}
	data.Content, data.Binary = readable(data.Payload)
	data.Cut = len(data.Payload) >= headBytes && data.PayloadBytes > len(data.Payload)
	return data, nil
}

const headBytes = 60 << 10 // of a payload that may be cut: ops returns 64 KiB

// readable is a payload as people read it: JSON with line breaks.
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

// kin finds the other consumers' messages of the same payload: pending ones as far as a first look finds them.
func (v *request) kin(data *messagePage) error {
	pending, _, err := v.session.Messages().Find(v.ctx(), admin.Search{MessageID: data.MessageID}, admin.Cursor{})
	if err != nil {
		return err
	}
	data.Siblings = slices.DeleteFunc(pending, func(m admin.Message) bool { return m.ID == data.ID })
	poisoned, _, err := v.session.Poisoned().List(v.ctx(), poison.Filter{MessageID: data.MessageID}, admin.Page{})
	data.PoisonedKin = slices.DeleteFunc(poisoned, func(m poison.Message) bool { return m.ID == data.ID })
	return err
}

// past is what is known of a message, the first thing first.
func past(m messagePage, crashes []admin.Crash, fleet []admin.Process) []happened {
	all := []happened{{At: m.CreatedAt, Text: "produced"}}
	if m.AvailableAt.After(m.CreatedAt) {
		all = append(all, happened{At: m.AvailableAt, Text: "due"})
	}
	for _, e := range m.Errors {
		text := fmt.Sprintf("run %d failed", e.Attempt)
		if e.Uncounted {
			text = "a run failed, which does not count"
		}
		all = append(all, happened{At: e.At, Text: text, More: e.Error, Tone: "bad"})
	}
	for _, c := range crashes {
		text := "its process was lost"
		if p := processOf(fleet, c.Owner); p != nil {
			text = fmt.Sprintf("process %d of %s on %s was lost with it", p.PID, p.Program, p.Host)
		}
		all = append(all, happened{At: c.At, Text: text, Tone: "bad"})
	}
	if m.Claim != nil {
		all = append(all, happened{At: m.Claim.ClaimedAt, Text: "claimed", Tone: "good"})
	}
	if p := m.Poisoned; p != nil {
		all = append(all, happened{At: p.PoisonedAt, Text: "poisoned", More: p.Reason, Tone: "bad"})
	}
	slices.SortStableFunc(all, func(a, b happened) int { return a.At.Compare(b.At) })
	return all
}

func processOf(fleet []admin.Process, id string) *admin.Process {
	if i := slices.IndexFunc(fleet, func(p admin.Process) bool { return p.ID == id }); i >= 0 {
		return &fleet[i]
	}
	return nil
}

// traceOf is the trace that a message was produced in, as its header traceparent has it, or empty.
func traceOf(headers map[string]string) string {
	parts := strings.Split(headers["traceparent"], "-")
	if len(parts) < 4 || len(parts[1]) != 32 || strings.Trim(parts[1], "0123456789abcdef") != "" {
		return ""
	}
	return parts[1]
}
