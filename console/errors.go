package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// httpError is an answer other than the page. Its text is shown, and contains nothing of the request.
type httpError struct {
	status int
	text   string
}

func (e httpError) Error() string { return e.text }

var errNoPage error = httpError{http.StatusNotFound, "Page not found."} // immutable

// noReason is the text for a form that lacks a reason. The reason is stored with what the form asks for.
func noReason(with string) string {
	return "The reason is missing. The audit log keeps the reason of each " + with + "."
}

// shownPage answers a form with a page, such as the form itself with what was typed.
type shownPage struct {
	template string
	status   int
	page     page
}

func (shownPage) Error() string { return "page" }

// redirect sends the browser to another address.
type redirect struct{ to string }

func (redirect) Error() string { return "redirect" }

// errorPage is the text of an error.
type errorPage struct {
	Text   string
	Passes bool      // it passes by itself: the page looks again
	Known  time.Time // when the last overview was made; zero if there is none
}

// refuse answers with an error.
func (r *request) refuse(err error) {
	var to redirect
	if errors.As(err, &to) { // http.Redirect makes the address absolute, which breaks behind a proxy that moves paths
		r.w.Header().Set("Location", to.to)
		r.w.WriteHeader(http.StatusSeeOther)
		return
	}
	var shown shownPage
	if errors.As(err, &shown) {
		if err = shown.page.load(r); err == nil {
			l := shown.page.layout()
			l.status = shown.status
			err = r.show(shown.template, l, shown.page)
		}
		if err == nil {
			return
		}
	}
	known := r.httpErrorOf(err)
	if known.status >= http.StatusInternalServerError && r.Context().Err() == nil {
		r.warn("console request failed", "page", r.route.path, "error", err.Error())
	}
	if r.session != nil && r.Method != http.MethodHead && !r.isFragment() {
		l := layout{title: http.StatusText(known.status), tab: "none", status: known.status}
		about := errorPage{Text: known.text, Passes: known.status == http.StatusServiceUnavailable && r.Method == http.MethodGet}
		if about.Passes && r.page != nil {
			l.title, l.tab, l.away = r.page.layout().title, r.page.layout().tab, known.text
			last, _, _ := r.session.LastOverview(r.Context()) // a principal that may see none gets none
			about.Known = last.At
		}
		if r.show("error.html", l, about) == nil {
			return
		}
	}
	if r.isFragment() {
		r.w.Header().Set(fragmentHeader, "error")
	}
	r.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	r.w.WriteHeader(known.status)
	_, _ = r.w.Write([]byte(known.text + "\n"))
}

// httpErrorOf is what the client learns of an error. The error's own text may contain a part of a payload, or the
// address of the database, unless it is about the parameters.
func (r *request) httpErrorOf(err error) httpError {
	var known httpError
	if errors.As(err, &known) {
		return known
	}
	for _, a := range answers() {
		if slices.ContainsFunc(a.to, func(target error) bool { return errors.Is(err, target) }) {
			if a.retry {
				r.w.Header().Set("Retry-After", "1")
			}
			return httpError{a.status, a.text}
		}
	}
	if dberr.IsUnavailable(err) {
		r.w.Header().Set("Retry-After", "5")
		return httpError{http.StatusServiceUnavailable, away(err) +
			" Messages stay pending until the database is available. The log of this process has the cause."}
	}
	return httpError{http.StatusInternalServerError,
		"The request failed. The log of this process has the cause."}
}

// answer is the status and the text for some errors.
type answer struct {
	to     []error
	status int
	retry  bool // in a second
	text   string
}

// answers are in the order in which they are tried.
func answers() []answer {
	return []answer{
		{to: []error{ops.ErrRedacted}, status: http.StatusForbidden,
			text: "Part of the content is hidden from you. Hidden content cannot be edited or searched."},
		{to: []error{ops.ErrForbidden}, status: http.StatusForbidden, text: "Permission denied."},
		{to: []error{ops.ErrBusy, context.DeadlineExceeded}, status: http.StatusServiceUnavailable, retry: true,
			text: "The database is busy: it did not answer within three seconds, or too many queries are running. Try again in a moment."},
		{to: append(goneErrors(), schedule.ErrNotFound, projection.ErrUnknown), status: http.StatusNotFound,
			text: "This item does not exist or no longer exists."},
		{to: []error{outbox.ErrSchemaOutdated}, status: http.StatusServiceUnavailable,
			text: "The library's tables are missing or older than this console. Run the migrations: asyncmonolith migrate."},
		{to: []error{errors.ErrUnsupported}, status: http.StatusNotFound, text: "This database does not support this feature."},
		{to: []error{ops.ErrExpired}, status: http.StatusConflict,
			text: "The plan is older than 10 minutes and can no longer be started. " +
				"Plan again: other messages may match now."},
		{to: []error{admin.ErrPayloadNotKept}, status: http.StatusConflict,
			text: "The payload of one of the messages was not kept, so that message cannot run again. Nothing was changed."},
		{to: []error{admin.ErrNotOpen}, status: http.StatusConflict, text: "The circuit breaker of the consumer is not open."},
		{to: []error{admin.ErrNotPaused}, status: http.StatusConflict, text: "The consumer is not paused."},
		{to: []error{ops.ErrInvalidState, ops.ErrInProgress}, status: http.StatusConflict,
			text: "This action no longer applies: the state has changed. Reload the page."},
		{to: []error{schedule.ErrExpression}, status: http.StatusBadRequest,
			text: "The expression or zone is invalid. An expression has five or six fields, or is a macro such as @daily. " +
				"A zone is a name such as Europe/Amsterdam."},
		{to: []error{bus.ErrInvalidOption, bus.ErrInvalidText, bus.ErrTooLarge}, status: http.StatusBadRequest,
			text: "A value is invalid or not allowed."},
	}
}

// goneErrors are those of a message or operation that does not exist any more.
func goneErrors() []error { return []error{admin.ErrNotFound, poison.ErrNotFound, ops.ErrNotFound} }

// ignoreGone is nil for an error of something that does not exist any more.
func ignoreGone(err error) error {
	if slices.ContainsFunc(goneErrors(), func(target error) bool { return errors.Is(err, target) }) {
		return nil
	}
	return err
}

// away says why a database cannot answer now.
func away(err error) string {
	switch dberr.ClassOf(err) {
	case dberr.ReadOnly:
		return "The database is read-only."
	case dberr.Exhausted:
		return "The database has no free connection, memory or disk space."
	default:
		return "The database does not answer."
	}
}
