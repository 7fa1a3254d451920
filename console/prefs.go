package console

import (
	"slices"
	"strconv"
	"strings"
)

// prefs are how a user wants to see pages. They are in a cookie.
type prefs struct {
	Theme string // auto, light or dark
	Every int    // seconds between refreshes; 0: none
	Keys  bool
	Zone  string // utc or local: of times, where scripts run
}

// Themes and Refreshes are the choices.
func (prefs) Themes() []string { return []string{"auto", "light", "dark"} }

// Refreshes are the choices for Every.
func (prefs) Refreshes() []int { return []int{0, 2, 5, 15} }

// Zones are the choices for Zone.
func (prefs) Zones() []string { return []string{"utc", "local"} }

func (p prefs) String() string {
	return p.Theme + "." + strconv.Itoa(p.Every) + "." + strconv.FormatBool(p.Keys) + "." + p.Zone
}

// parsePrefs reads what String has written, and is the defaults for any other text.
func parsePrefs(text string) prefs {
	p := prefs{Theme: "auto", Every: 5, Keys: true, Zone: "utc"}
	parts := strings.Split(text, ".")
	if len(parts) < 3 || len(parts) > 4 {
		return p
	}
	return p.with(parts[0], parts[1], parts[2], append(parts, "")[3])
}

// with changes what is a choice, and keeps the rest.
func (p prefs) with(theme, every, keys, zone string) prefs {
	if slices.Contains(p.Themes(), theme) {
		p.Theme = theme
	}
	if n, err := strconv.Atoi(every); err == nil && slices.Contains(p.Refreshes(), n) {
		p.Every = n
	}
	if on, err := strconv.ParseBool(keys); err == nil {
		p.Keys = on
	}
	if slices.Contains(p.Zones(), zone) {
		p.Zone = zone
	}
	return p
}

// settingsForm keeps preferences, and goes back to the page.
type settingsForm struct{ theme, every, keys, zone, back string }

func (f *settingsForm) read(q *params) {
	f.theme, f.every, f.keys, f.zone, f.back = q.raw("theme"), q.raw("every"), q.raw("keys"), q.raw("zone"), q.raw("back")
}

func (f *settingsForm) submit(r *request) (link, error) {
	r.setCookie(prefsCookie, r.prefs().with(f.theme, f.every, f.keys, f.zone).String(), 365*24*60*60)
	return r.pageAt(f.back), nil
}
