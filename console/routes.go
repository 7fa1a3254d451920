package console

import (
	"net/http"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// route is what is at a path. One of page, do and serve is set.
type route struct {
	path   string // below the prefix; without a slash, so that all links are of one word
	method string
	role   ops.Role // the least; the service asks for more where the action takes it
	// template and page show something.
	template string
	page     func(*request) (page, error)
	// do changes something, and returns the page to go on with. changes reports whether it is a change of
	// the database.
	do      func(*request) (link, error)
	changes bool
	// serve writes the answer itself.
	serve func(*request) error
}

// routes are all that there is, but for assets.
func routes() []route {
	const get, post = http.MethodGet, http.MethodPost
	return []route{
		{path: "", method: get, role: ops.Viewer, template: "overview.html", page: (*request).overview},
		{path: "consumer", method: get, role: ops.Viewer, template: "consumer.html", page: (*request).consumer},
		{path: "messages", method: get, role: ops.Viewer, template: "messages.html", page: (*request).messages},
		{path: "find", method: get, role: ops.Viewer, template: "find.html", page: (*request).find},
		{path: "message", method: get, role: ops.Viewer, template: "message.html", page: (*request).message},
		{path: "poisoned", method: get, role: ops.Viewer, template: "poisoned.html", page: (*request).poisoned},
		{path: "group", method: get, role: ops.Viewer, template: "group.html", page: (*request).group},
		{path: "suspects", method: get, role: ops.Viewer, template: "suspects.html", page: (*request).suspects},
		{path: "schedules", method: get, role: ops.Viewer, template: "schedules.html", page: (*request).schedules},
		{path: "schedule", method: get, role: ops.Viewer, template: "schedule.html", page: (*request).schedule},
		{path: "processes", method: get, role: ops.Viewer, template: "processes.html", page: (*request).processes},
		{path: "claim", method: get, role: ops.Viewer, template: "claim.html", page: (*request).claim},
		{path: "projections", method: get, role: ops.Viewer, template: "projections.html", page: (*request).projections},
		{path: "projection", method: get, role: ops.Viewer, template: "projection.html", page: (*request).projection},
		{path: "operations", method: get, role: ops.Viewer, template: "operations.html", page: (*request).operations},
		{path: "operation", method: get, role: ops.Viewer, template: "operation.html", page: (*request).operation},
		{path: "doctor", method: get, role: ops.Viewer, template: "doctor.html", page: (*request).doctor},
		{path: "confirm", method: get, role: ops.Operator, template: "confirm.html", page: (*request).confirm},
		{path: "edit", method: get, role: ops.Administrator, template: "edit.html", page: (*request).edit},

		{path: "do", method: post, role: ops.Operator, changes: true, do: (*request).do},
		{path: "plan", method: post, role: ops.Operator, changes: true, do: (*request).plan},
		{path: "start", method: post, role: ops.Operator, changes: true, do: (*request).start},
		{path: "rate", method: post, role: ops.Operator, changes: true, do: (*request).rate},
		{path: "edited", method: post, role: ops.Administrator, changes: true, template: "edit.html", page: (*request).edited},
		{path: "export", method: post, role: ops.Administrator, changes: true, serve: (*request).export},
		{path: "settings", method: post, role: ops.Viewer, do: (*request).settings},
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

// answer answers a request that was admitted.
func (r route) answer(v *request) error {
	switch {
	case r.page != nil:
		began := time.Now()
		p, err := r.page(v)
		if err != nil {
			return err
		}
		v.costs.note(strings.TrimSuffix(r.template, ".html"), time.Since(began))
		return v.show(r.template, p)
	case r.do != nil:
		to, err := r.do(v)
		if err != nil {
			return err
		}
		return elsewhere{to.String()}
	default:
		return r.serve(v)
	}
}

// allow is a header Allow.
func (r route) allow() string {
	if r.method == http.MethodGet {
		return "GET, HEAD"
	}
	return r.method
}
