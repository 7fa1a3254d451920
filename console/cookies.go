package console

import (
	"net"
	"net/http"
	"strconv"
)

const (
	prefsCookie    = "asyncmonolith-view"
	outcomeCookie  = "asyncmonolith-did"
	outcomeSeconds = 30
)

// prefs are those of the cookie, or the defaults.
func (r *request) prefs() prefs { return parsePrefs(r.cookie(prefsCookie)) }

// setFlash has the next page show an outcome. No link can do that, since it is in a cookie.
func (r *request) setFlash(o outcome) { r.setCookie(outcomeCookie, o.String(), outcomeSeconds) }

// flash is the outcome of the form before, once.
func (r *request) flash() string {
	value := r.cookie(outcomeCookie)
	if value == "" || r.isFragment() {
		return ""
	}
	r.setCookie(outcomeCookie, "", -1)
	return parseOutcome(value).text()
}

func (r *request) cookie(name string) string {
	cookie, err := r.Cookie(r.cookieName(name))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// setCookie sets a cookie without a path: it is for the pages beside this one, below whatever prefix a proxy has.
func (r *request) setCookie(name, value string, seconds int) {
	http.SetCookie(r.w, &http.Cookie{
		Name: r.cookieName(name), Value: value, MaxAge: seconds, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode,
	})
}

// cookieName has the port in it: browsers share the cookies of a host among its ports.
func (r *request) cookieName(name string) string {
	_, port, err := net.SplitHostPort(r.Host)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		return name
	}
	return name + "-" + port
}
