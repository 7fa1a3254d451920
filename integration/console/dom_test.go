package console_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// document is a page as a browser without scripts has it.
type document struct {
	path   string
	links  []string // that lead to pages of the console, as they stand there
	away   []string // that lead elsewhere
	assets []string
	forms  []form
	text   string
	// foreign is what no page of the console has unless somebody's text has become markup.
	foreign []string
}

// form is one with what it sends unless somebody fills it in.
type form struct {
	page, method, action string
	fields               url.Values
}

// route is the path of a link, which stands for a page.
func route(link string) string {
	path, _, _ := strings.Cut(link, "?")
	return strings.TrimPrefix(path, "./")
}

// parse reads a page.
func parse(t testing.TB, path, body string) *document {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	d := &document{path: path}
	var text strings.Builder
	for n := range root.Descendants() {
		switch n.Type {
		case html.TextNode:
			text.WriteString(n.Data + " ")
		case html.ElementNode:
			d.element(n)
		}
	}
	d.text = strings.Join(strings.Fields(text.String()), " ")
	return d
}

func attributes(n *html.Node) map[string]string {
	all := make(map[string]string, len(n.Attr))
	for _, a := range n.Attr {
		all[a.Key] = a.Val
	}
	return all
}

// element notes what an element is for, and whether it may be there.
func (d *document) element(n *html.Node) {
	all := attributes(n)
	for name := range all {
		if strings.HasPrefix(name, "on") || name == "style" || name == "srcdoc" || name == "autofocus" || name == "formaction" &&
			!local(all[name]) {
			d.stranger(n)
		}
	}
	switch n.Data {
	case "a":
		d.link(n, all["href"])
	case "link", "script", "use":
		address := all["href"] + all["src"]
		if !local(address) || n.Data == "script" && (all["src"] == "" || n.FirstChild != nil) {
			d.stranger(n)
		}
		d.assets = append(d.assets, address)
	case "form":
		d.form(n, all)
	case "meta":
		if all["http-equiv"] != "" {
			d.stranger(n)
		}
	case "img", "iframe", "frame", "object", "embed", "base", "style", "applet", "math", "video", "audio":
		d.stranger(n)
	}
}

func (d *document) stranger(n *html.Node) {
	d.foreign = append(d.foreign, fmt.Sprintf("<%s %v>", n.Data, n.Attr))
}

// local tells whether an address is one of the console, wherever that is.
func local(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "" && u.Host == "" && u.Opaque == "" && !strings.HasPrefix(address, "/") &&
		!strings.Contains(u.Path, "..") && !strings.ContainsAny(address, "\\\n\t")
}

func (d *document) link(n *html.Node, address string) {
	switch {
	case strings.HasPrefix(address, "#"):
	case local(address):
		d.links = append(d.links, address)
	case strings.HasPrefix(address, "https://traces.example/"):
		d.away = append(d.away, address)
	default:
		d.stranger(n)
	}
}

// form notes a form, once for each of its buttons that says which it is.
func (d *document) form(n *html.Node, all map[string]string) {
	f := form{d.path, strings.ToUpper(cmp.Or(all["method"], http.MethodGet)), all["action"], url.Values{}}
	if f.method != "DIALOG" && !local(f.action) {
		d.stranger(n)
	}
	var buttons [][2]string
	for c := range n.Descendants() {
		if c.Type != html.ElementNode {
			continue
		}
		if named := attributes(c); c.DataAtom == atom.Button && named["name"] != "" {
			buttons = append(buttons, [2]string{named["name"], named["value"]})
		}
		f.field(c)
	}
	if len(buttons) == 0 {
		d.forms = append(d.forms, f)
	}
	for _, b := range buttons {
		pressed := f
		pressed.fields = maps.Clone(f.fields)
		pressed.fields.Set(b[0], b[1])
		d.forms = append(d.forms, pressed)
	}
}

// field notes what a form sends of itself: of choices the first unless another is chosen, of boxes all, as if they were
// ticked.
func (f *form) field(n *html.Node) {
	all := attributes(n)
	name := all["name"]
	if name == "" {
		return
	}
	switch n.DataAtom {
	case atom.Input:
		if _, chosen := all["checked"]; all["type"] == "radio" && !chosen && f.fields.Has(name) {
			return
		}
		f.fields.Add(name, all["value"])
	case atom.Textarea:
		text := ""
		if n.FirstChild != nil {
			text = n.FirstChild.Data
		}
		f.fields.Add(name, text)
	case atom.Select:
		for o := range n.Descendants() {
			if o.DataAtom == atom.Option {
				value := attributes(o)
				if _, chosen := value["selected"]; chosen || !f.fields.Has(name) {
					f.fields.Set(name, value["value"])
				}
			}
		}
	}
}

// name says what a form is for: where it goes, and what it says there that is to be done.
func (f form) name() string {
	return strings.TrimSpace(route(f.action) + " " + f.fields.Get("do"))
}

// crawl opens all pages that links and forms lead to, and some of each kind from each kind: as many as a person would.
func crawl(s *site, each int) map[string]*document {
	s.Helper()
	found, of := make(map[string]*document), make(map[string]int)
	type step struct{ from, to string }
	for next := []step{{}}; len(next) > 0; next = next[1:] {
		link := strings.TrimPrefix(next[0].to, "./")
		link, _, _ = strings.Cut(link, "#")
		kind := kindOf(link)
		if from := next[0].from + " to " + kind; found[link] != nil || of[from] >= each {
			continue
		} else {
			of[from]++
		}
		a := s.get(link)
		hidden := kind == "edit" && a.status == http.StatusForbidden // only there is the whole content looked at
		if a.status != http.StatusOK && a.status != http.StatusNotFound && a.status != http.StatusConflict &&
			!hidden { // of what is there no more
			s.Errorf("%s, which is on a page %q: got %s", link, next[0].from, a)
			continue
		}
		if !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
			continue
		}
		d := parse(s, link, a.body)
		found[link] = d
		for _, to := range d.links {
			next = append(next, step{kind, to})
		}
		for _, f := range d.forms {
			if f.method == http.MethodGet && route(f.action) == "confirm" && f.fields.Has("do") {
				next = append(next, step{kind, f.action + "?" + f.fields.Encode()})
			}
		}
	}
	return found
}

// kindOf is the kind of a page: its path, and what is to be confirmed there.
func kindOf(link string) string {
	path, query, _ := strings.Cut(link, "?")
	values, _ := url.ParseQuery(query)
	return strings.TrimSpace(path + " " + values.Get("do"))
}

// changes are the forms of a crawl that change something, one of each kind.
func changes(pages map[string]*document) map[string]form {
	found := make(map[string]form)
	for _, path := range slices.Sorted(maps.Keys(pages)) {
		for _, f := range pages[path].forms {
			if f.method == http.MethodPost && route(f.action) != "settings" && found[f.name()].action == "" {
				found[f.name()] = f
			}
		}
	}
	return found
}

// administratorsChanges are all that there is to change in the normal world, by name.
func administratorsChanges(t testing.TB) map[string]form {
	t.Helper()
	return everyChange.of(t)
}

// everyChange is found once.
var everyChange changesFound // immutable once it is found

type changesFound struct {
	once  sync.Once
	all   map[string]form
	paths []string // of pages, assets and changes
}

func (c *changesFound) of(t testing.TB) map[string]form {
	t.Helper()
	c.once.Do(func() {
		s := newSite(t, inWorld(t, "normal"), ops.Administrator)
		pages := crawl(s, 4)
		c.all = changes(pages)
		// Who has planned something may start it, and take it back until it begins.
		ada := newSite(t, s.db, ops.Administrator, named("ada"), patient)
		planned := planOf(ada)
		c.all["start"] = ada.formOf(planned.ID, "start")
		testapp.Must[ops.Operation](t)(ada.session().Operations().Start(t.Context(), planned.ID, ops.StartOptions{Reason: "because"}))
		c.all["do undo"] = ada.formOf(planned.ID, "do undo")
		c.paths = slices.Collect(maps.Keys(pages))
		c.paths = append(c.paths, pages[""].assets...)
		for _, f := range c.all {
			c.paths = append(c.paths, f.action)
		}
		c.paths = append(c.paths, "settings", "no-such-page", "assets/", "assets/x", "favicon.ico", "/", "//", "messages/", "messages/..",
			"x/../messages")
	})
	if len(c.paths) == 0 {
		t.Fatal("the pages of the normal world could not be looked through: another test says why")
	}
	return maps.Clone(c.all)
}

// patient has what is started wait for long.
func patient(_ *site, c *ops.Config, _ *consoleConfig) { c.UndoWindow = time.Hour }

// session is that of who asks.
func (s *site) session() *operator.Session {
	return operator.As(s.service, ops.Principal{Name: s.name, Role: ops.Role(s.role.Load())})
}

// planOf plans to requeue a group.
func planOf(s *site) ops.Operation {
	s.Helper()
	return testapp.Must[ops.Operation](s.TB)(s.session().Operations().Plan(s.Context(), ops.Requeue,
		ops.Target{Poisoned: &poison.Filter{Consumer: "consumer-03", Fingerprint: fingerprint(3)}}))
}

// formOf is one of the page of an operation.
func (s *site) formOf(id int64, name string) form {
	s.Helper()
	path := fmt.Sprintf("operation?id=%d", id)
	for _, f := range parse(s, path, s.must(path).body).forms {
		if f.name() == name {
			return f
		}
	}
	s.Fatalf("%s: it has no form %q", path, name)
	return form{}
}

// TestUnchangedFragments are not sent again, also behind a proxy that compresses them, whose tags are weak.
func TestUnchangedFragments(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "empty"), ops.Viewer)
	fragment := header("X-Asyncmonolith-Fragment", "main")
	tag := s.get("find", fragment).header.Get("ETag")
	for sent, want := range map[string]int{tag: http.StatusNotModified, "W/" + tag: http.StatusNotModified,
		`"another", ` + tag: http.StatusNotModified, `"another"`: http.StatusOK, "": http.StatusOK} {
		got := s.get("find", fragment, header("If-None-Match", sent))
		if got.status != want || strings.Contains(got.body, "<") != (want == http.StatusOK) {
			t.Errorf("If-None-Match %q: got %s, want status %d", sent, got, want)
		}
	}
}
