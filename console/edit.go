package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// editPage is a form with the payload of a poisoned message.
type editPage struct {
	ID       int64
	Consumer string
	Type     string
	Text     string
	Reason   string
	Wrong    string // why it is refused
	Check    *operator.Edit
	Checked  bool // nothing is wrong with it
	Sure     bool // the form asks whether unknown and missing fields are meant
	status   int
}

const mostEdited = 1 << 20 // bytes of a payload

func (p *editPage) read(q *params) { p.ID = q.needID("id") }

func (p *editPage) load(r *request) error {
	payload, err := p.loadMessage(r)
	if err != nil {
		return err
	}
	text, binary := readable(payload)
	if binary {
		return httpError{http.StatusConflict, "The payload is binary and cannot be edited here."}
	}
	p.Text = text
	return nil
}

func (p *editPage) layout() layout {
	return layout{title: fmt.Sprintf("Edit message %d", p.ID), tab: "poisoned", status: p.status}
}

// loadMessage returns the payload, if the principal may edit it and sees all of it.
func (p *editPage) loadMessage(r *request) ([]byte, error) {
	m, err := r.session.Poisoned().Get(r.Context(), p.ID)
	if err != nil {
		return nil, err
	}
	if err := operator.May(r.session, ops.Edit, m.Consumer); err != nil {
		return nil, err
	}
	if m.PayloadBytes > len(m.Payload) && len(m.Payload) >= headBytes {
		return nil, httpError{http.StatusConflict,
			"The payload is too large to edit here. A program can edit the message."}
	}
	p.Consumer, p.Type = m.Consumer, m.PayloadType
	return m.Payload, unredacted(r, p.ID, m.Payload)
}

// unredacted is an error if a part of the payload is hidden, which an edit would lose.
func unredacted(r *request, id int64, payload []byte) error {
	_, err := r.session.Poisoned().CheckEdit(r.Context(), id, payload)
	if errors.Is(err, ops.ErrForbidden) || errors.Is(err, poison.ErrNotFound) || errors.Is(err, ops.ErrBusy) {
		return err
	}
	return nil // the edit is to mend whatever else is wrong
}

// editedPage is the form that was sent. Once the message is requeued, it redirects.
type editedPage struct {
	editPage
	requeue bool // else the payload is only checked
	sure    bool // unknown and missing fields are meant
}

func (p *editedPage) read(q *params) {
	p.ID, p.Reason, p.Text = q.needID("id"), q.text("reason"), strings.ReplaceAll(q.raw("text"), "\r\n", "\n")
	p.requeue, p.sure = q.raw("go") == "requeue", q.raw("sure") != ""
}

func (p *editedPage) load(r *request) error {
	if _, err := p.loadMessage(r); err != nil {
		return err
	}
	if len(p.Text) > mostEdited {
		p.refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("The payload is too large: at most %d bytes are allowed.", mostEdited))
		return nil
	}
	check, err := r.session.Poisoned().CheckEdit(r.Context(), p.ID, []byte(p.Text))
	if wrong := wrongEdit(err, p.Text); wrong != "" {
		p.refuse(http.StatusUnprocessableEntity, wrong)
		return nil
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	p.Check, p.Checked, p.Sure = &check, true, len(check.Unknown)+len(check.Missing) > 0
	switch {
	case !p.requeue:
		return nil
	case p.Reason == "":
		p.refuse(http.StatusUnprocessableEntity, noReason("change"))
		return nil
	case p.Sure && !p.sure:
		p.refuse(http.StatusUnprocessableEntity,
			"Some fields are unknown or missing. Confirm below that this is intended.")
		return nil
	}
	err = r.session.Poisoned().EditAndRequeue(r.Context(), p.Reason, p.ID, []byte(p.Text))
	if wrong := wrongEdit(err, p.Text); wrong != "" {
		p.refuse(http.StatusUnprocessableEntity, wrong)
		return nil
	}
	if err != nil {
		return err
	}
	r.setFlash(outcome{code: "edited"})
	return redirect{linkTo("group", "consumer", p.Consumer).String()}
}

// refuse shows the form again, with the text that was sent.
func (p *editedPage) refuse(status int, wrong string) { p.status, p.Wrong = status, wrong }

// wrongEdit says what is wrong with an edit, and is empty for any other error.
func wrongEdit(err error, text string) string {
	switch {
	case errors.Is(err, bus.ErrNoConsumer):
		return "This process does not have the consumer, so it cannot check the payload. " +
			"Edit where the consumer runs, or requeue the message unchanged."
	case errors.Is(err, poison.ErrPayload), errors.Is(err, bus.ErrInvalidPayload), errors.Is(err, bus.ErrInvalidText):
		return "The payload cannot be decoded: " + jsonTrouble(text)
	case errors.Is(err, bus.ErrTooLarge):
		return "The payload is too large."
	case errors.Is(err, poison.ErrConflict):
		return "Another message with this insert id is pending. This message stays poisoned until the other is done."
	default:
		return ""
	}
}

// jsonTrouble says where a text is not JSON.
func jsonTrouble(text string) string {
	var payload json.RawMessage
	err := json.Unmarshal([]byte(text), &payload)
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return "the JSON does not fit the payload type."
	}
	before := text[:min(int(syntax.Offset), len(text))]
	return fmt.Sprintf("invalid JSON in line %d (%s).", strings.Count(before, "\n")+1, syntax)
}
