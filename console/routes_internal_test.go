package console

import (
	"database/sql"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Internal: the table of routes is not to be seen from outside, and this walks it.

// TestTable: each route is complete, of one word, and changes nothing by looking.
func TestTable(t *testing.T) {
	t.Parallel()
	pages, err := parsePages()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range routes() {
		ways := 0
		for _, set := range []bool{r.page != nil, r.form != nil, r.serve != nil} {
			if set {
				ways++
			}
		}
		switch {
		case seen[r.path]:
			t.Errorf("route %q is there twice", r.path)
		case ways != 1:
			t.Errorf("route %q has %d ways to answer, want 1", r.path, ways)
		case r.page != nil && pages[r.template] == nil:
			t.Errorf("route %q: there is no template %q", r.path, r.template)
		case strings.Contains(r.path, "/"):
			t.Errorf("route %q: relative links need paths of one word", r.path)
		case r.method == http.MethodGet && (r.changes || r.form != nil):
			t.Errorf("route %q changes something by GET", r.path)
		case r.method == http.MethodPost && !r.changes && r.path != "settings":
			t.Errorf("route %q: changes are bounded by a rate", r.path)
		case r.role < ops.Viewer || r.role > ops.Administrator:
			t.Errorf("route %q has role %s", r.path, r.role)
		}
		seen[r.path] = true
	}
}

// TestTemplatesFitTheirPages: a template names fields and methods that its page has, as far as an empty page shows them.
func TestTemplatesFitTheirPages(t *testing.T) {
	t.Parallel()
	templates, err := parsePages()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes() {
		if r.page == nil {
			continue
		}
		if err := templates[r.template].ExecuteTemplate(io.Discard, "layout", view{Data: r.page()}); err != nil {
			t.Errorf("route %q: %v", r.path, err)
		}
	}
}

// TestActions: what takes an administrator says why, and each action's role is the service's.
func TestActions(t *testing.T) {
	t.Parallel()
	viewer, op := sessionOf(t, ops.Viewer), sessionOf(t, ops.Operator)
	for _, d := range actions() {
		if d.permission != "" && operator.May(viewer, d.permission, "") == nil {
			t.Errorf("%q: a viewer may do it", d.name)
		}
		if d.permission != "" && operator.May(op, d.permission, "") != nil && !d.danger {
			t.Errorf("%q takes an administrator, and asks for no reason", d.name)
		}
		if d.do == nil || d.verb == "" || d.says == "" && !d.direct {
			t.Errorf("%q is not complete", d.name)
		}
	}
}

// sessionOf is a session that has no database.
func sessionOf(t *testing.T, role ops.Role) *operator.Session {
	t.Helper()
	db := bun.NewDB(new(sql.DB), pgdialect.New())
	registry, err := bus.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	service, err := ops.New(ops.Config{DB: db, Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	return operator.As(service, ops.Principal{Name: "ada", Role: role})
}

// TestTemplatesNameActions: an action that is misspelt would be nobody's, and its button not be seen.
func TestTemplatesNameActions(t *testing.T) {
	t.Parallel()
	known := []ops.Action{ops.View, ops.Read, ops.Export, ops.Pause, ops.Resume, ops.Probe, ops.RunNow, ops.Reschedule, ops.Cancel,
		ops.Requeue, ops.Discard, ops.Repeat, ops.Edit, ops.RunSchedule, ops.PauseSchedule,
		ops.ResumeSchedule, ops.DeleteSchedule, ops.UpdateSchedule,
		ops.ResumeProjection, ops.RetryParked, ops.Rebuild, ops.Promote, ops.UndoOperation, ops.StopOperation, ops.ResumeOperation,
		ops.SetOperationRate}
	entries, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range entries {
		text, err := templateFiles.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`\.(?:May|MayDecide) "([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
			found++
			if !slices.Contains(known, ops.Action(match[1])) {
				t.Errorf("%s: there is no action %q", name, match[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d actions in templates, want 20 or more", found)
	}
}

// TestOutcomes: what a cookie can have a page say is one of our sentences.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    outcome
		want string
	}{
		{outcome{"requeued", []int{3, 1, 2}},
			"3 messages requeued. 1 message stays poisoned: the insert id is already pending. 2 messages no longer exist."},
		{outcome{"cancelled", []int{1, 2, 0}}, "1 message cancelled. 2 messages are unchanged: a process holds them."},
		{outcome{"<b>", nil}, ""}, {outcome{"due", nil}, "0 messages due now."}, {outcome{"shards", []int{2}}, "2 halted shards resumed."},
	} {
		if got := c.o.text(); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.o, got, c.want)
		}
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{linkTo("").String(), "./"}, {linkTo("consumer", "name", "..").String(),
			"consumer?name=.."}, {linkTo("consumer", "name", "a/b?c&d").String(), "consumer?name=a%2Fb%3Fc%26d"},
		{linkTo("group", "consumer", "", "fingerprint", "1").String(), "group?fingerprint=1"},
		{linkTo("messages", "insert", "0", "consumer", "false", "id", int64(0), "version", 0).String(), "messages?consumer=false&insert=0"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestNarrowedTargets: a form and a link have all that narrows what is to be changed, and a page says so, also of
// what only the command can ask for.
func TestNarrowedTargets(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("0190b3c4-1111-7abc-8def-001122334455")
	for _, f := range []admin.Filter{
		{Consumer: "0"}, {PayloadType: "false"}, {InsertID: "0"}, {OrderingKey: "0"}, {MessageID: id}, {State: admin.Ready}, {Crashed: true},
		{Retrying: true}, {OlderThan: time.Hour},
	} {
		o := operation{ops.Operation{Target: ops.Target{Pending: &f}}}
		if got := (&params{values: pendingOf(f).Fields()}).pending().Filter; got != f {
			t.Errorf("form of %+v: got %+v", f, got)
		}
		if to := o.aboutLink(); !strings.Contains(to, "?") || f.Consumer == "" && strings.Contains(o.About(), "all of them") {
			t.Errorf("%+v: got %q and link %q, which say nothing of it", f, o.About(), to)
		}
	}
	for _, f := range []poison.Filter{
		{Consumer: "0"}, {PayloadType: "false"}, {Fingerprint: "0"}, {OrderingKey: "0"}, {MessageID: id}, {Error: "0"},
		{TraceID: "0af7651916cd43dd8448eb211c80319c"},
		{PoisonedAfter: time.Unix(1_700_000_000, 0).UTC()}, {PoisonedBefore: time.UnixMicro(1_700_000_000_123_456).UTC()},
	} {
		o := operation{ops.Operation{Target: ops.Target{Poisoned: &f}}}
		if got := (&params{values: poisonedFilter{f}.Fields()}).poisoned().Filter; !reflect.DeepEqual(got, f) {
			t.Errorf("form of %+v: got %+v", f, got)
		}
		if to := o.aboutLink(); !strings.Contains(to, "?") || f.Consumer == "" && strings.Contains(o.About(), "all of them") {
			t.Errorf("%+v: got %q and link %q, which say nothing of it", f, o.About(), to)
		}
	}
	for _, o := range []ops.Operation{{Target: ops.Target{Poisoned: &poison.Filter{IDs: []int64{7, 8}}}},
		{Hidden: true, Target: ops.Target{Poisoned: &poison.Filter{}}}} {
		if about := (operation{o}).About(); strings.Contains(about, "all of them") {
			t.Errorf("%+v: got %q", o, about)
		}
	}
	none := &params{values: url.Values{"message": {uuid.Nil.String()}}}
	if f := none.poisoned(); none.wrong == "" {
		t.Errorf("a message id of zeros: got %+v, which selects all", f.Filter)
	}
	all := operation{ops.Operation{Target: ops.Target{Poisoned: &poison.Filter{}}}}
	if about := all.About(); about != "poisoned messages, all of them" {
		t.Errorf("all: got %q", about)
	}
}

func TestTimesForPeople(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{0: "–", 0.0002: "1 ms", 0.25: "250 ms", 1: "1 s", 1.5: "1.5 s", 59: "59 s",
		61: "1 min 1 s", 3600: "1 h", 3660: "1 h 1 min", 40 * 3600: "40 h", 50 * 3600: "2 d 2 h", 1e7: "115 d"} {
		if got := duration(time.Duration(seconds * float64(time.Second))); got != want {
			t.Errorf("%v s: got %q, want %q", seconds, got, want)
		}
	}
}

// TestScriptIsShort: whoever reads the console reads its script.
func TestScriptIsShort(t *testing.T) {
	t.Parallel()
	all, err := loadAssets()
	if err != nil {
		t.Fatal(err)
	}
	script := string(all["console.js"].content)
	if n := strings.Count(script, "\n"); n > 300 {
		t.Errorf("the script has %d lines, 300 are allowed", n)
	}
	for _, word := range []string{"eval(", "document.write", "insertAdjacentHTML", "outerHTML", "localStorage", "http://", "https://"} {
		if strings.Contains(script, word) {
			t.Errorf("the script has %q", word)
		}
	}
	for name, asset := range all {
		if asset.kind == "" {
			t.Errorf("asset %s has no type", name)
		}
	}
}

// TestTemplatesHaveNoHandlers: styles and scripts in markup would not pass the Content-Security-Policy.
func TestTemplatesHaveNoHandlers(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"templates", "templates/shared"} {
		entries, err := templateFiles.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if entry.IsDir() {
				continue
			}
			text, err := templateFiles.ReadFile(dir + "/" + entry.Name())
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range []string{" style=", " onclick", " onload", "<script>", "safeHTML", "href=\"/", "action=\"/", "src=\"/"} {
				if strings.Contains(string(text), word) {
					t.Errorf("%s has %q", entry.Name(), word)
				}
			}
		}
	}
}
