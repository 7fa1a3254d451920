package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

const (
	mostQuery = 8 << 10
	mostBody  = 1<<20 + 100<<10 // a payload of a MiB, and what stands beside it
	bodyTime  = 10 * time.Second
	fewValues = 1000 // in a query or form
)

// guards are asked of each request in this order, before anything is done for it. Who is refused learns
// nothing that a guard behind would have told.
func guards() []func(*request) error {
	return []func(*request) error{
		(*request).isForKnownHost,
		(*request).isBelowPrefix,
		(*request).isShort,
		(*request).isOurOwnPost,
		(*request).isOurOwnGet,
		(*request).hasSmallBody,
		(*request).isAuthorized,
		(*request).isSeldom,
		(*request).isRouted,
		(*request).hasRole,
		(*request).changesSeldom,
		(*request).hasForm,
	}
}

func (v *request) admit() error {
	for _, guard := range guards() {
		if err := guard(v); err != nil {
			return err
		}
	}
	return nil
}

// secure has browsers allow a page nothing but what the console itself brings.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types asyncmonolith")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer our own forms would have no origin
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// isForKnownHost refuses requests for other host names that point at this address (DNS rebinding).
func (v *request) isForKnownHost() error {
	if len(v.config.Hosts) == 0 || knownHost(v.config.Hosts, v.r.Host) {
		return nil
	}
	return httpError{http.StatusMisdirectedRequest, "This is not a console of the host that was asked for."}
}

func (v *request) isBelowPrefix() error {
	if strings.Contains(strings.ToLower(v.r.URL.EscapedPath()), "%2f") { // it would be another path to the browser's relative links
		return errNoPage
	}
	rest, ok := strings.CutPrefix(v.r.URL.Path, v.config.Prefix)
	v.path, v.bare = rest, v.r.URL.Path+"/" == v.config.Prefix
	if !ok && !v.bare {
		return errNoPage
	}
	return nil
}

func (v *request) isShort() error {
	if len(v.r.URL.RawQuery) > mostQuery {
		return httpError{http.StatusRequestURITooLong, fmt.Sprintf("The address is too long: at most %d bytes of it may stand behind the question mark.", mostQuery)}
	}
	query, err := url.ParseQuery(v.r.URL.RawQuery)
	if err != nil || len(query) > fewValues {
		return httpError{http.StatusBadRequest, "The address cannot be read."}
	}
	v.query = query
	return nil
}

// isOurOwnPost lets only pages of our own send something. Browsers say where a request comes from: what
// does not say it comes from none, and cannot have the console's cookies by accident.
func (v *request) isOurOwnPost() error {
	if v.r.Method != http.MethodPost {
		return nil
	}
	if v.r.Header.Get("Sec-Fetch-Site") == "" && v.r.Header.Get("Origin") == "" || v.origins.Check(v.r) != nil {
		return httpError{http.StatusForbidden, "Changes are taken from the console's own pages only. If this is one, a proxy has removed the headers Origin and Sec-Fetch-Site, or has changed Host: see Config.TrustedOrigins."}
	}
	return nil
}

// isOurOwnGet lets other sites link to pages, and do nothing else with them.
func (v *request) isOurOwnGet() error {
	site := v.r.Header.Get("Sec-Fetch-Site")
	if v.r.Method == http.MethodPost || site != "cross-site" && site != "same-site" {
		return nil
	}
	if v.r.Header.Get("Sec-Fetch-Mode") != "navigate" || v.r.Header.Get("Sec-Fetch-Dest") != "document" {
		return httpError{http.StatusForbidden, "Other sites may only link to the console."}
	}
	return nil
}

func (v *request) hasSmallBody() error {
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, mostBody)
	if v.r.Method == http.MethodPost { // not every ResponseWriter can: then the server's own timeouts hold
		_ = http.NewResponseController(v.w).SetReadDeadline(time.Now().Add(bodyTime))
	}
	return nil
}

func (v *request) isAuthorized() error {
	who, err := v.whoAsks()
	switch {
	case err != nil && !errors.Is(err, errPanicked) && v.config.LoginURL != "" && v.r.Method == http.MethodGet && !v.isFragment():
		return elsewhere{v.login()}
	case err != nil && !errors.Is(err, errPanicked):
		return httpError{http.StatusUnauthorized, "You are not logged in."}
	case err != nil || who.Name == "" || who.Role == ops.None || who.Role > ops.Administrator:
		return httpError{http.StatusForbidden, "You may not use the console."}
	}
	v.who, v.session = who, v.service.As(who)
	return nil
}

const mostReturn = 2000 // bytes of an address that a login is told: headers have bounds elsewhere, too

// login is where a user logs in, and comes back from. The address that was asked for may be forged:
// it leads to no other host, and not out of the console.
func (v *request) login() string {
	name := v.path
	if strings.ContainsAny(name, `/\`) || strings.Trim(name, ".") == "" { // no page is called so, and a browser would make another path of it
		name = ""
	}
	asked := url.URL{Path: v.config.Prefix + name, RawQuery: v.query.Encode()}
	back := asked.RequestURI()
	if len(back) > mostReturn {
		back = asked.EscapedPath()
	}
	return strings.ReplaceAll(v.config.LoginURL, urlMark, url.QueryEscape(back))
}

var errPanicked = errors.New("it has panicked")

// whoAsks asks the application, whose mistake must not grant access.
func (v *request) whoAsks() (who ops.Principal, err error) {
	defer func() {
		if p := recover(); p != nil {
			v.warn("Config.Authorize has panicked, and the request is refused", "stack", string(debug.Stack()))
			who, err = ops.Principal{}, errPanicked
		}
	}()
	return v.config.Authorize(v.r)
}

func (v *request) isSeldom() error {
	return v.within(v.limits.ask(v.who.Name), "requests")
}

func (v *request) within(wait time.Duration, what string) error {
	if wait <= 0 {
		return nil
	}
	v.w.Header().Set("Retry-After", fmt.Sprint(int(wait/time.Second)+1))
	return httpError{http.StatusTooManyRequests, fmt.Sprintf("There are too many %s of %s at once. Try again in a moment.", what, v.who.Name)}
}

func (v *request) isRouted() error {
	if v.bare { // links are relative to what ends with a slash
		return elsewhere{path.Base(v.config.Prefix) + "/"}
	}
	found, ok := v.routes[v.path]
	if !ok {
		return errNoPage
	}
	if method := v.r.Method; found.method != method && (method != http.MethodHead || found.method != http.MethodGet) {
		v.w.Header().Set("Allow", found.allow())
		return httpError{http.StatusMethodNotAllowed, "This method is not allowed here."}
	}
	v.route = found
	return nil
}

func (v *request) hasRole() error {
	if v.who.Role < v.route.role {
		return httpError{http.StatusForbidden, fmt.Sprintf("This takes the role %s, and yours is %s.", v.route.role, v.who.Role)}
	}
	return nil
}

func (v *request) changesSeldom() error {
	if !v.route.changes {
		return nil
	}
	return v.within(v.limits.change(v.who.Name), "changes")
}

func (v *request) hasForm() error {
	if v.r.Method != http.MethodPost {
		return nil
	}
	if kind, _, _ := strings.Cut(v.r.Header.Get("Content-Type"), ";"); strings.TrimSpace(kind) != "application/x-www-form-urlencoded" {
		return httpError{http.StatusUnsupportedMediaType, "A form is sent as application/x-www-form-urlencoded."}
	}
	err := v.r.ParseForm()
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return httpError{http.StatusRequestEntityTooLarge, fmt.Sprintf("The form is too large: %d bytes are allowed.", mostBody)}
	case err != nil || len(v.r.PostForm) > fewValues:
		return httpError{http.StatusBadRequest, "The form cannot be read."}
	}
	v.form = v.r.PostForm
	return nil
}
