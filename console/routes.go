package console

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// page is what a path shows. Its template gets its exported fields and methods.
type page interface {
	read(*params)
	load(*request) error
	layout() layout
}

// form is what a path changes. submit returns the page to go on with.
type form interface {
	read(*params)
	submit(*request) (link, error)
}

// route is what is at a path: one of page, form and serve.
type route struct {
	path     string // below the prefix; without a slash, since all links are relative
	method   string
	role     ops.Role // the least; an action may need more
	template string   // of page
	page     func() page
	form     func() form
	changes  bool // the database
	serve    func(*request) error
}

// routes are all but those of the assets.
func routes() []route {
	const get, post = http.MethodGet, http.MethodPost
	const viewer, operator, administrator = ops.Viewer, ops.Operator, ops.Administrator
	return []route{
		{path: "", method: get, role: viewer, template: "overview.html", page: func() page { return &overviewPage{} }},
		{path: "consumer", method: get, role: viewer, template: "consumer.html", page: func() page { return &consumerPage{} }},
		{path: "messages", method: get, role: viewer, template: "messages.html", page: func() page { return &messagesPage{} }},
		{path: "consumed", method: get, role: viewer, template: "consumed.html", page: func() page { return &consumedPage{} }},
		{path: "find", method: get, role: viewer, template: "find.html", page: func() page { return &findPage{} }},
		{path: "message", method: get, role: viewer, template: "message.html", page: func() page { return &messagePage{} }},
		{path: "poisoned", method: get, role: viewer, template: "poisoned.html", page: func() page { return &poisonedPage{} }},
		{path: "group", method: get, role: viewer, template: "group.html", page: func() page { return &groupPage{} }},
		{path: "suspects", method: get, role: viewer, template: "suspects.html", page: func() page { return &suspectsPage{} }},
		{path: "schedules", method: get, role: viewer, template: "schedules.html", page: func() page { return &schedulesPage{} }},
		{path: "schedule", method: get, role: viewer, template: "schedule.html", page: func() page { return &schedulePage{} }},
		{path: "processes", method: get, role: viewer, template: "processes.html", page: func() page { return &processesPage{} }},
		{path: "claim", method: get, role: viewer, template: "claim.html", page: func() page { return &claimPage{} }},
		{path: "projections", method: get, role: viewer, template: "projections.html", page: func() page { return &projectionsPage{} }},
		{path: "projection", method: get, role: viewer, template: "projection.html", page: func() page { return &projectionPage{} }},
		{path: "operations", method: get, role: viewer, template: "operations.html", page: func() page { return &operationsPage{} }},
		{path: "operation", method: get, role: viewer, template: "operation.html", page: func() page { return &operationPage{} }},
		{path: "doctor", method: get, role: viewer, template: "doctor.html", page: func() page { return &doctorPage{} }},
		{path: "confirm", method: get, role: operator, template: "confirm.html", page: func() page { return &confirmPage{} }},
		{path: "edit", method: get, role: administrator, template: "edit.html", page: func() page { return &editPage{} }},

		{path: "do", method: post, role: operator, changes: true, form: func() form { return &actionRequest{} }},
		{path: "plan", method: post, role: operator, changes: true, form: func() form { return &planForm{} }},
		{path: "start", method: post, role: operator, changes: true, form: func() form { return &startForm{} }},
		{path: "rate", method: post, role: operator, changes: true, form: func() form { return &rateForm{} }},
		{path: "edited", method: post, role: administrator, changes: true,
			template: "edit.html", page: func() page { return &editedPage{} }},
		{path: "export", method: post, role: administrator, changes: true, serve: func(r *request) error { return new(export).serve(r) }},
		{path: "settings", method: post, role: viewer, form: func() form { return &settingsForm{} }},
	}
}

func byPath(all ...[]route) map[string]route {
	found := map[string]route{}
	for _, some := range all {
		for _, r := range some {
			found[r.path] = r
		}
	}
	return found
}

// answer answers a request that passed the guards.
func (rt route) answer(r *request) error {
	switch {
	case rt.page != nil:
		return rt.answerPage(r, rt.page())
	case rt.form != nil:
		f := rt.form()
		if err := r.params().into(f); err != nil {
			return err
		}
		to, err := f.submit(r)
		if err != nil {
			return err
		}
		return redirect{to.String()}
	default:
		return rt.serve(r)
	}
}

func (rt route) answerPage(r *request, p page) error {
	began := time.Now()
	if err := r.params().into(p); err != nil {
		return err
	}
	r.page = p
	if err := p.load(r); err != nil {
		return err
	}
	r.costs.note(strings.TrimSuffix(rt.template, ".html"), time.Since(began))
	return r.show(rt.template, p.layout(), p)
}

// allow is a header Allow.
func (rt route) allow() string {
	if rt.method == http.MethodGet {
		return "GET, HEAD"
	}
	return rt.method
}

// pageAt is the link to a page of the console, or to the first page if the address is of none.
func (c *Console) pageAt(address string) link {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || len(u.RawQuery) > mostQuery {
		return link{}
	}
	path := strings.TrimPrefix(u.Path, "./")
	if found, known := c.routes[path]; !known || found.page == nil || found.method != http.MethodGet {
		return link{}
	}
	return link{path, u.Query()}
}
