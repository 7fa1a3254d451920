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

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

const (
	mostQuery = 8 << 10
	mostBody  = 1<<20 + 100<<10 // a payload of a MiB, and the other fields
	bodyTime  = 10 * time.Second
	fewValues = 1000 // in a query or form
)

// guards check each request in this order, before anything else. A refused client learns nothing that a later
// guard would have told.
func guards() []func(*request) error {
	return []func(*request) error{
		(*request).isForKnownHost,
		(*request).isBelowPrefix,
		(*request).isShort,
		(*request).isOurOwnPost,
		(*request).isOurOwnGet,
		(*request).hasSmallBody,
		(*request).isAuthorized,
		(*request).isWithinRate,
		(*request).isRouted,
		(*request).hasRole,
		(*request).isWithinChangeRate,
		(*request).hasForm,
	}
}

func (r *request) admit() error {
	for _, guard := range guards() {
		if err := guard(r); err != nil {
			return err
		}
	}
	return nil
}

// secure allows a page nothing but the console's own files.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types asyncmonolith")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer the console's forms have no origin
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// isForKnownHost refuses requests for other host names that point at this address (DNS rebinding).
func (r *request) isForKnownHost() error {
	if len(r.config.Hosts) == 0 || knownHost(r.config.Hosts, r.Host) {
		return nil
	}
	return httpError{http.StatusMisdirectedRequest, "This host name is not allowed."}
}

func (r *request) isBelowPrefix() error {
	if strings.Contains(strings.ToLower(r.URL.EscapedPath()), "%2f") { // a browser's relative links leave another path
		return errNoPage
	}
	rest, ok := strings.CutPrefix(r.URL.Path, r.config.Prefix)
	r.path, r.bare = rest, r.URL.Path+"/" == r.config.Prefix
	if !ok && !r.bare {
		return errNoPage
	}
	return nil
}

func (r *request) isShort() error {
	if len(r.URL.RawQuery) > mostQuery {
		return httpError{http.StatusRequestURITooLong,
			fmt.Sprintf("The address is too long: the query may have at most %d bytes.", mostQuery)}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(query) > fewValues {
		return httpError{http.StatusBadRequest, "The address is invalid."}
	}
	r.query = query
	return nil
}

// isOurOwnPost accepts forms of the console's own pages only. Browsers send where a request comes from. A client that
// does not is no browser, and has no cookies by accident.
func (r *request) isOurOwnPost() error {
	if r.Method != http.MethodPost {
		return nil
	}
	if r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" || r.origins.Check(r.Request) != nil {
		return httpError{http.StatusForbidden, "Changes are accepted only from the console's own pages. If this is one, " +
			"a proxy removed the headers Origin and Sec-Fetch-Site or changed Host: see Config.TrustedOrigins."}
	}
	return nil
}

// isOurOwnGet allows links from other sites, but no frames and no scripts.
func (r *request) isOurOwnGet() error {
	site := r.Header.Get("Sec-Fetch-Site")
	if r.Method == http.MethodPost || site != "cross-site" && site != "same-site" {
		return nil
	}
	if r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document" {
		return httpError{http.StatusForbidden, "Other sites may only link to the console."}
	}
	return nil
}

func (r *request) hasSmallBody() error {
	r.Body = http.MaxBytesReader(r.w, r.Body, mostBody)
	if r.Method == http.MethodPost { // a ResponseWriter without deadlines leaves it to the server's timeouts
		_ = http.NewResponseController(r.w).SetReadDeadline(time.Now().Add(bodyTime))
	}
	return nil
}

func (r *request) isAuthorized() error {
	who, err := r.authorize()
	switch {
	case err != nil && !errors.Is(err, errPanicked) && r.config.LoginURL != "" && r.Method == http.MethodGet && !r.isFragment():
		return redirect{r.login()}
	case err != nil && !errors.Is(err, errPanicked):
		return httpError{http.StatusUnauthorized, "You are not logged in."}
	case err != nil || who.Name == "" || who.Role == ops.None || who.Role > ops.Administrator:
		return httpError{http.StatusForbidden, "You do not have permission to use the console."}
	}
	r.who, r.session = who, operator.As(r.service, who)
	return nil
}

const mostReturn = 2000 // bytes of the address to come back to: login pages have limits, too

// login is the address of the login page. The address to come back to may be forged: it never names another host,
// or a path outside of the console.
func (r *request) login() string {
	name := r.path
	if strings.ContainsAny(name, `/\`) || strings.Trim(name, ".") == "" { // no page, and another path for a browser
		name = ""
	}
	asked := url.URL{Path: r.config.Prefix + name, RawQuery: r.query.Encode()}
	back := asked.RequestURI()
	if len(back) > mostReturn {
		back = asked.EscapedPath()
	}
	return strings.ReplaceAll(r.config.LoginURL, urlMark, url.QueryEscape(back))
}

var errPanicked = errors.New("authorize panicked")

// authorize calls Config.Authorize. A panic there does not grant access.
func (r *request) authorize() (who ops.Principal, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.warn("Config.Authorize panicked, request refused", "stack", string(debug.Stack()))
			who, err = ops.Principal{}, errPanicked
		}
	}()
	return r.config.Authorize(r.Request)
}

func (r *request) isWithinRate() error {
	return r.limited(r.limits.request(r.who.Name), "requests")
}

func (r *request) limited(wait time.Duration, what string) error {
	if wait <= 0 {
		return nil
	}
	r.w.Header().Set("Retry-After", fmt.Sprint(int(wait/time.Second)+1))
	return httpError{http.StatusTooManyRequests,
		fmt.Sprintf("Too many %s from %s. Try again in a moment.", what, r.who.Name)}
}

func (r *request) isRouted() error {
	if r.bare { // relative links need the slash
		return redirect{path.Base(r.config.Prefix) + "/"}
	}
	found, ok := r.routes[r.path]
	if !ok {
		return errNoPage
	}
	if found.method != r.Method && (r.Method != http.MethodHead || found.method != http.MethodGet) {
		r.w.Header().Set("Allow", found.allow())
		return httpError{http.StatusMethodNotAllowed, "This method is not allowed here."}
	}
	r.route = found
	return nil
}

func (r *request) hasRole() error {
	if r.who.Role < r.route.role {
		return httpError{http.StatusForbidden, fmt.Sprintf("This requires the role %s. Your role is %s.", r.route.role, r.who.Role)}
	}
	return nil
}

func (r *request) isWithinChangeRate() error {
	if !r.route.changes {
		return nil
	}
	return r.limited(r.limits.change(r.who.Name), "changes")
}

func (r *request) hasForm() error {
	if r.Method != http.MethodPost {
		return nil
	}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(kind) != "application/x-www-form-urlencoded" {
		return httpError{http.StatusUnsupportedMediaType, "Send forms as application/x-www-form-urlencoded."}
	}
	err := r.ParseForm()
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return httpError{http.StatusRequestEntityTooLarge, fmt.Sprintf("The form is too large: at most %d bytes are allowed.", mostBody)}
	case err != nil || len(r.PostForm) > fewValues:
		return httpError{http.StatusBadRequest, "The form is invalid."}
	}
	r.form = r.PostForm
	return nil
}
