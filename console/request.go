package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// request is an HTTP request with what the guards read from it. Pages and forms answer it.
type request struct {
	*Console
	*http.Request
	w       http.ResponseWriter
	path    string // below the prefix
	bare    bool   // the path is the prefix without its last slash
	query   url.Values
	form    url.Values // of a POST
	who     ops.Principal
	session *operator.Session
	route   route
	page    page   // that it asks for; nil: none
	later   func() // runs once the answer is sent; nil: nothing does
}

// params reads the form of a route that takes one, and the query of any other.
func (r *request) params() *params {
	if r.route.method == http.MethodPost {
		return &params{values: r.form}
	}
	return &params{values: r.query}
}

// here is the page that is shown.
func (r *request) here() link { return link{r.path, r.query} }

// fragmentHeader asks for the main part of a page, which replaces that of the page in the browser.
const fragmentHeader = "X-Asyncmonolith-Fragment"

func (r *request) isFragment() bool { return r.Header.Get(fragmentHeader) != "" }

// show writes a page, or its main part.
func (r *request) show(template string, l layout, data any) error {
	name := "layout"
	if r.isFragment() {
		name = "main"
	}
	var b bytes.Buffer
	if err := r.pages[template].ExecuteTemplate(&b, name, r.view(l, data)); err != nil {
		return fmt.Errorf("template %s: %w", template, err)
	}
	h := r.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Cookie, "+fragmentHeader)
	if r.isFragment() {
		h.Set(fragmentHeader, "main") // a login page in its place does not have this header
		hash := sha256.Sum256(b.Bytes())
		tag := `"` + hex.EncodeToString(hash[:12]) + `"`
		h.Set("ETag", tag)
		if strings.Contains(r.Header.Get("If-None-Match"), tag) { // one of several, or a weak one from a proxy that compresses
			r.w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	if l.status != 0 {
		r.w.WriteHeader(l.status)
	}
	_, _ = r.w.Write(b.Bytes()) // the client may have gone
	return nil
}

func (r *request) view(l layout, data any) view {
	var counts map[string]tabCount
	if !r.isFragment() {
		o, due, _ := r.session.LastOverview(r.Context()) // who may see none sees no counts
		counts = countsOf(o)
		if due && r.Method == http.MethodGet && r.route.role == ops.Viewer && r.later == nil {
			r.later = r.renewOverview
		}
	}
	return view{
		Title: l.title, Tab: l.tab, Data: data, Environment: r.config.Environment, Who: r.who,
		Away: l.away, Prefs: r.prefs(), Notice: r.flash(), Here: r.here().String(), Now: time.Now().UTC(), Counts: counts, assets: r.assets,
		session: r.session,
	}
}

// finish does what is left to do once the answer is sent.
func (r *request) finish() {
	if r.later == nil {
		return
	}
	_ = http.NewResponseController(r.w).Flush() // without it, the answer waits for later
	r.later()
}

// overview returns the cached overview, and renews it after the answer if it is old.
func (r *request) overview() (operator.Overview, error) {
	o, due, err := r.session.CachedOverview(r.Context())
	if due {
		r.later = r.renewOverview
	}
	for _, u := range o.Unseen { // the page names the parts, and only the log has the reason
		r.warn("overview section not read", "parts", strings.Join(u.Parts, ", "), "error", u.Why)
	}
	return o, err
}

// queues are those of the overview.
func (r *request) queues() (queues, error) {
	o, err := r.overview()
	return o.Queues, err
}

// renewOverview goes on when the client has gone: its result is for the next request.
func (r *request) renewOverview() {
	if _, err := r.session.Overview(context.WithoutCancel(r.Context())); err != nil {
		r.warn("overview not refreshed", "error", err.Error())
	}
}
