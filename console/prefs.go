package console

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// prefs are how a user wants to see pages. They are in a cookie.
type prefs struct {
	Theme string // auto, light or dark
	Every int    // seconds between looks; 0: none
	Keys  bool
}

const prefsCookie = "asyncmonolith-view"

func themes() []string { return []string{"auto", "light", "dark"} }

func refreshes() []int { return []int{0, 2, 5, 15} }

// Themes and Refreshes are what can be chosen.
func (prefs) Themes() []string { return themes() }

// Refreshes are what can be chosen.
func (prefs) Refreshes() []int { return refreshes() }

func (p prefs) String() string {
	return p.Theme + "." + strconv.Itoa(p.Every) + "." + strconv.FormatBool(p.Keys)
}

// prefs are those of the cookie, or the defaults where it has none.
func (v *request) prefs() prefs {
	p := prefs{Theme: "auto", Every: 5, Keys: true}
	cookie, err := v.r.Cookie(v.cookieName(prefsCookie))
	if err != nil {
		return p
	}
	parts := strings.Split(cookie.Value, ".")
	if len(parts) != 3 {
		return p
	}
	return chosen(parts[0], parts[1], parts[2], p)
}

// chosen is what was chosen of what there is.
func chosen(theme, every, keys string, p prefs) prefs {
	if slices.Contains(themes(), theme) {
		p.Theme = theme
	}
	if n, err := strconv.Atoi(every); err == nil && slices.Contains(refreshes(), n) {
		p.Every = n
	}
	if on, err := strconv.ParseBool(keys); err == nil {
		p.Keys = on
	}
	return p
}

// settings keeps preferences, and goes back to the page.
func (v *request) settings() (link, error) {
	p := chosen(v.form.Get("theme"), v.form.Get("every"), v.form.Get("keys"), v.prefs())
	v.setCookie(prefsCookie, p.String(), 365*24*60*60)
	return v.back(v.form.Get("back")), nil
}

// back is a page of the console, the first one unless there is one with that address.
func (v *request) back(to string) link {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || len(u.RawQuery) > mostQuery {
		return link{}
	}
	path := strings.TrimPrefix(u.Path, "./")
	if r, known := v.routes[path]; !known || r.page == nil || r.method != http.MethodGet {
		return link{}
	}
	return link{path, u.Query()}
}

// Here is the page that is shown, to come back to.
func (v *request) Here() string { return link{v.path, v.query}.String() }

// setCookie sets a cookie for the console's own pages: without a path it holds for those beside this one,
// wherever a proxy has put them.
func (v *request) setCookie(name, value string, seconds int) {
	http.SetCookie(v.w, &http.Cookie{Name: v.cookieName(name), Value: value, MaxAge: seconds, HttpOnly: true, Secure: v.r.TLS != nil, SameSite: http.SameSiteLaxMode})
}

// cookieName is a name of this port: cookies of a host are those of all its ports.
func (v *request) cookieName(name string) string {
	_, port, err := net.SplitHostPort(v.r.Host)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		return name
	}
	return name + "-" + port
}
