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
}

// Themes and Refreshes are the choices.
func (prefs) Themes() []string { return []string{"auto", "light", "dark"} }

// Refreshes are the choices for Every.
func (prefs) Refreshes() []int { return []int{0, 2, 5, 15} }

func (p prefs) String() string {
	return p.Theme + "." + strconv.Itoa(p.Every) + "." + strconv.FormatBool(p.Keys)
}

// parsePrefs reads what String has written, and is the defaults for any other text.
func parsePrefs(text string) prefs {
	p := prefs{Theme: "auto", Every: 5, Keys: true}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return p
	}
	return p.with(parts[0], parts[1], parts[2])
}

// with changes what is a choice, and keeps the rest.
func (p prefs) with(theme, every, keys string) prefs {
	if slices.Contains(p.Themes(), theme) {
		p.Theme = theme
	}
	if n, err := strconv.Atoi(every); err == nil && slices.Contains(p.Refreshes(), n) {
		p.Every = n
	}
	if on, err := strconv.ParseBool(keys); err == nil {
		p.Keys = on
	}
	return p
}

// settingsForm keeps preferences, and goes back to the page.
type settingsForm struct{ theme, every, keys, back string }

func (f *settingsForm) read(q *params) {
	f.theme, f.every, f.keys, f.back = q.raw("theme"), q.raw("every"), q.raw("keys"), q.raw("back")
}

func (f *settingsForm) submit(r *request) (link, error) {
	r.setCookie(prefsCookie, r.prefs().with(f.theme, f.every, f.keys).String(), 365*24*60*60)
	return r.pageAt(f.back), nil
}
