package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// editPage is the payload of a poisoned message, to be mended.
type editPage struct {
	ID       int64
	Consumer string
	Type     string
	Text     string
	Reason   string
	Wrong    string // why it is not taken, in words
	Check    *poison.Edit
	Checked  bool // nothing is wrong with it
	Sure     bool // it is asked whether unknown and missing fields are meant
}

const mostEdited = 1 << 20 // bytes of a payload

// edit shows the form.
func (v *request) edit() (page, error) {
	a := v.asks()
	id := a.needID("id")
	if err := a.err(); err != nil {
		return page{}, err
	}
	m, err := v.editable(id)
	if err != nil {
		return page{}, err
	}
	text, binary := readable(m.Payload)
	if binary {
		return page{}, httpError{http.StatusConflict, "The payload is not text, and cannot be edited here."}
	}
	data := editPage{ID: id, Consumer: m.Consumer, Type: m.PayloadType, Text: text}
	return v.editor(data, 0), nil
}

// editable is a message of which the principal sees the whole payload, as it is.
func (v *request) editable(id int64) (m ops.Poisoned, err error) {
	if m, err = v.session.Poisoned().Get(v.ctx(), id); err != nil {
		return m, err
	}
	if err := v.mayDo(ops.Edit, m.Consumer); err != nil {
		return m, err
	}
	if m.PayloadBytes > len(m.Payload) && len(m.Payload) >= headBytes {
		return m, httpError{http.StatusConflict, "The payload is too large to be edited here. A program can: poison.Store.EditAndRequeue."}
	}
	return m, v.unredacted(id, m.Payload)
}

// unredacted is an error where a part of the payload is hidden, which an edit would lose.
func (v *request) unredacted(id int64, payload []byte) error {
	if _, err := v.session.Poisoned().CheckEdit(v.ctx(), id, payload); errors.Is(err, ops.ErrForbidden) || errors.Is(err, poison.ErrNotFound) || errors.Is(err, ops.ErrBusy) {
		return err
	}
	return nil // what else is wrong with it is what the edit is to mend
}

// edited checks an edit, and requeues the message with it. What is wrong is said, and the text is kept.
func (v *request) edited() (page, error) {
	a := v.sends()
	id := a.needID("id")
	data := editPage{ID: id, Reason: a.text("reason"), Text: strings.ReplaceAll(v.form.Get("text"), "\r\n", "\n")}
	if err := a.err(); err != nil {
		return page{}, err
	}
	m, err := v.editable(id)
	if err != nil {
		return page{}, err
	}
	data.Consumer, data.Type = m.Consumer, m.PayloadType
	if len(data.Text) > mostEdited {
		data.Wrong = fmt.Sprintf("The payload is too large: %d bytes are allowed.", mostEdited)
		return v.editor(data, http.StatusRequestEntityTooLarge), nil
	}
	check, err := v.session.Poisoned().CheckEdit(v.ctx(), id, []byte(data.Text))
	if data.Wrong = wrongEdit(err, data.Text); data.Wrong != "" {
		return v.editor(data, http.StatusUnprocessableEntity), nil
	} else if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return page{}, err
	}
	data.Check, data.Checked = &check, true
	data.Sure = len(check.Unknown)+len(check.Missing) > 0
	if v.form.Get("go") != "requeue" {
		return v.editor(data, 0), nil
	}
	switch {
	case data.Reason == "":
		data.Wrong = "Say why: the reason is missing. It is kept with the change, for others to see."
	case data.Sure && v.form.Get("sure") == "":
		data.Wrong = "Some fields are unknown to the consumer, or are missing. If that is meant, say so below."
	}
	if data.Wrong != "" {
		return v.editor(data, http.StatusUnprocessableEntity), nil
	}
	err = v.session.Poisoned().EditAndRequeue(v.ctx(), data.Reason, id, []byte(data.Text))
	if data.Wrong = wrongEdit(err, data.Text); data.Wrong != "" {
		return v.editor(data, http.StatusUnprocessableEntity), nil
	} else if err != nil {
		return page{}, err
	}
	v.tell(outcome{code: "edited"})
	return page{}, elsewhere{linkTo("group", "consumer", data.Consumer).String()}
}

func (v *request) editor(data editPage, status int) page {
	return page{Title: fmt.Sprintf("Edit message %d", data.ID), Tab: "poisoned", Data: data, Status: status}
}

// wrongEdit is what is wrong with an edit, in words, or empty where it is something else.
func wrongEdit(err error, text string) string {
	switch {
	case errors.Is(err, bus.ErrNoConsumer):
		return "This process does not have the consumer, and cannot tell whether the payload fits it. Edit where the consumer runs, or requeue the message as it is."
	case errors.Is(err, poison.ErrPayload), errors.Is(err, bus.ErrInvalidPayload), errors.Is(err, bus.ErrInvalidText):
		return "The consumer cannot read this payload: " + jsonTrouble(text)
	case errors.Is(err, bus.ErrTooLarge):
		return "The payload is too large."
	case errors.Is(err, poison.ErrConflict):
		return "The insert id is pending again: the message stays poisoned until that one is done."
	default:
		return ""
	}
}

// jsonTrouble says where a text is no JSON.
func jsonTrouble(text string) string {
	var any json.RawMessage
	err := json.Unmarshal([]byte(text), &any)
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return "it is JSON, but not what the consumer takes."
	}
	before := text[:min(int(syntax.Offset), len(text))]
	return fmt.Sprintf("it is no JSON from line %d on (%s).", strings.Count(before, "\n")+1, syntax)
}
