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
	page     func(*visit) (page, error)
	// do changes something, and returns the page to go on with. changes reports whether it is a change of
	// the database.
	do      func(*visit) (link, error)
	changes bool
	// serve writes the answer itself.
	serve func(*visit) error
}

// routes are all that there is, but for assets.
func routes() []route {
	const get, post = http.MethodGet, http.MethodPost
	return []route{
		{path: "", method: get, role: ops.Viewer, template: "overview.html", page: (*visit).overview},
		{path: "consumer", method: get, role: ops.Viewer, template: "consumer.html", page: (*visit).consumer},
		{path: "messages", method: get, role: ops.Viewer, template: "messages.html", page: (*visit).messages},
		{path: "find", method: get, role: ops.Viewer, template: "find.html", page: (*visit).find},
		{path: "message", method: get, role: ops.Viewer, template: "message.html", page: (*visit).message},
		{path: "poisoned", method: get, role: ops.Viewer, template: "poisoned.html", page: (*visit).poisoned},
		{path: "group", method: get, role: ops.Viewer, template: "group.html", page: (*visit).group},
		{path: "suspects", method: get, role: ops.Viewer, template: "suspects.html", page: (*visit).suspects},
		{path: "schedules", method: get, role: ops.Viewer, template: "schedules.html", page: (*visit).schedules},
		{path: "schedule", method: get, role: ops.Viewer, template: "schedule.html", page: (*visit).schedule},
		{path: "processes", method: get, role: ops.Viewer, template: "processes.html", page: (*visit).processes},
		{path: "claim", method: get, role: ops.Viewer, template: "claim.html", page: (*visit).claim},
		{path: "projections", method: get, role: ops.Viewer, template: "projections.html", page: (*visit).projections},
		{path: "projection", method: get, role: ops.Viewer, template: "projection.html", page: (*visit).projection},
		{path: "operations", method: get, role: ops.Viewer, template: "operations.html", page: (*visit).operations},
		{path: "operation", method: get, role: ops.Viewer, template: "operation.html", page: (*visit).operation},
		{path: "doctor", method: get, role: ops.Viewer, template: "doctor.html", page: (*visit).doctor},
		{path: "confirm", method: get, role: ops.Operator, template: "confirm.html", page: (*visit).confirm},
		{path: "edit", method: get, role: ops.Administrator, template: "edit.html", page: (*visit).edit},

		{path: "do", method: post, role: ops.Operator, changes: true, do: (*visit).do},
		{path: "plan", method: post, role: ops.Operator, changes: true, do: (*visit).plan},
		{path: "start", method: post, role: ops.Operator, changes: true, do: (*visit).start},
		{path: "rate", method: post, role: ops.Operator, changes: true, do: (*visit).rate},
		{path: "edited", method: post, role: ops.Administrator, changes: true, template: "edit.html", page: (*visit).edited},
		{path: "export", method: post, role: ops.Administrator, changes: true, serve: (*visit).export},
		{path: "settings", method: post, role: ops.Viewer, do: (*visit).settings},
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
func (r route) answer(v *visit) error {
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
