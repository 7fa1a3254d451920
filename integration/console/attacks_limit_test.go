package console_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// mostBytes is what a page may weigh at most, whatever is asked of it and whatever the database has.
const mostBytes = 2 << 20

// numbers are some that nobody means.
var numbers = []string{"9223372036854775808", "9223372036854775807", "-9223372036854775808", "-1", "0", "1e309", "NaN",
	"0x7fffffffffffffff", strings.Repeat("9",
		2000), "999999h", "9999999999h", "-5m", "292277026596-12-04T15:30:08", "0000-00-00T00:00", "0000-01-01T00:00",
	"9999-12-31T23:59:59-10:00", "10000-01-01 00:00:00"} // immutable

// TestAttack19NumbersWithoutLimits: sizes, pages, dates and rates that nobody means.
// Promise: console
func TestAttack19NumbersWithoutLimits(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator)
	askEach(t, s, 2, numbers, func(path string, a answer) {
		if a.status >= 500 || len(a.body) > mostBytes {
			t.Errorf("%.300s: got %d bytes of %s", path, len(a.body), a)
		}
	})
	forms := administratorsChanges(t)
	for _, action := range slices.Sorted(maps.Keys(forms)) {
		f := forms[action]
		s := newSite(t, inWorld(t, "normal"), ops.Administrator) // of its own: what one change ends another cannot change
		for name := range f.fields {
			for _, number := range numbers {
				form := filledIn(f)
				form.Set(name, number)
				if a := s.post(f.action, form); a.status >= 500 {
					t.Errorf("%s with %s=%.50s: got %s", action, name, number, a)
				}
				withinLimits(t, s.db, action+" with "+name+"="+number)
			}
		}
		form := filledIn(f)
		for i := range 100_000 {
			form.Add("id", fmt.Sprint(i))
		}
		if a := s.post(f.action, form); a.status >= 500 {
			t.Errorf("%s of 100,000 ids: got %s", action, a)
		}
		withinLimits(t, s.db, action)
	}
	startWithoutLimits(t)
	for _, path := range []string{"messages?consumer=" + strings.Repeat("x", 9<<10), "?" + strings.Repeat("a&", 5000),
		"?" + strings.Repeat("%", 100), "messages?a=%zz"} {
		if a := s.get(path); a.status < 400 || a.status >= 500 {
			t.Errorf("%.50s: got %s, want that it is refused", path, a)
		}
	}
}

// withinLimits sees that nothing was stored which nobody means.
func withinLimits(t *testing.T, db *bun.DB, what string) {
	t.Helper()
	for _, query := range []string{
		"SELECT count(*) FROM message_operations WHERE rate < 0 OR rate > 100000 OR canary < 0 OR canary > 500",
		"SELECT count(*) FROM consumer_messages WHERE available_after > 253402300800000000 OR available_after < 0",
		"SELECT count(*) FROM message_operations WHERE state = 'done' AND json_array_length(target, '$.ids') > 500",
	} {
		if got := count(t, db, query); got != 0 {
			t.Errorf("%.60s: %s: got %d, want 0", what, query, got)
		}
	}
}

// startWithoutLimits starts plans, each as somebody else, so that none changes too much.
func startWithoutLimits(t *testing.T) {
	t.Helper()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator, patient)
	for _, field := range []string{"rate", "canary"} {
		for i, number := range numbers {
			s.name = fmt.Sprint(field, i)
			o := planOf(s)
			f := s.formOf(o.ID, "start")
			form := filledIn(f)
			form.Set(field, number)
			if a := s.post(f.action, form); a.status >= 500 {
				t.Errorf("start with %s=%.50s: got %s", field, number, a)
			}
			withinLimits(t, s.db, "start with "+field+"="+number)
			_, _ = s.session().Operations().Undo(t.Context(), "because", o.ID) // where it was started: the same is started once
		}
	}
}

// TestAttack19NumbersOfDatabases: what one database takes for a number or a time another may not.
// Promise: console
func TestAttack19NumbersOfDatabases(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"sqlite": testdb.SQLite, "postgres": testdb.Postgres,
		"mariadb": testdb.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, seeded(t, open(t)), ops.Administrator)
			for _, number := range numbers {
				for _, query := range []string{"group?since=", "group?until=", "messages?older=", "message?id=", "schedule?id=",
					"operation?id=", "claim?id=", "find?what=message&value=0&examined=", "projection?name=projection-00&version=",
					"confirm?do=run_now&id=", "confirm?do=requeue&id="} {
					if a := s.get(query + url.QueryEscape(number)); a.status >= 500 {
						t.Errorf("%s%.50s: got %s", query, number, a)
					}
				}
			}
		})
	}
}

// TestHugePages: pages stay as long as people read, however much there is.
func TestHugePages(t *testing.T) {
	t.Parallel()
	if !*all {
		t.Skip("it takes a minute: make console-test")
	}
	s := newSite(t, inWorld(t, "huge"), ops.Administrator)
	for path, d := range crawl(s, 3) {
		if a := s.get(path); len(a.body) > mostBytes {
			t.Errorf("%.200s: got %d bytes", path, len(a.body))
		}
		if len(d.links) > 1500 {
			t.Errorf("%.200s: got %d links, which nobody reads", path, len(d.links))
		}
	}
}

// bombs are expressions of schedules that take for ever or eat all memory where nobody bounds them.
func bombs() []string {
	return []string{
		"0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 29 2 1", strings.Repeat("*/1,", 50_000) + "* * * * *", "0-59" + strings.Repeat(",0-59",
			10_000) + " * * * *",
		"*/0 * * * *", "*/99999999999999999999 * * * *", "0-99999999999 * * * *", "@every 1ns", "@every -1h", "TZ=../../etc/passwd * * * * *",
		"CRON_TZ=" + strings.Repeat("A/", 5000) + " * * * * *", "* * * * * * * * * *", "59 23 31 12 *",
	}
}

// TestAttack20CronBombs: what stands in a schedule, or is typed into its form, is bounded.
// Promise: console
func TestAttack20CronBombs(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator)
	f, found := administratorsChanges(t)["do update_schedule"]
	if !found {
		t.Fatal("no form changes a schedule")
	}
	quickly := func(what string, ask func() answer) answer {
		began := time.Now()
		a := ask()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%.40s: it took %s", what, took)
		}
		return a
	}
	for _, bomb := range bombs() {
		form := filledIn(f)
		form.Set("expression", bomb)
		if a := quickly(bomb, func() answer { return s.post(f.action, form) }); a.status >= 500 {
			t.Errorf("%.40s: got %s", bomb, a)
		}
		if n := count(t, s.db, "SELECT count(*) FROM scheduled_messages WHERE length(cron_expression) > 1024"); n > 0 {
			t.Errorf("%.40s: got %d schedules that have it", bomb, n)
		}
		form = filledIn(f)
		form.Set("zone", bomb)
		if a := s.post(f.action, form); a.status < 400 || a.status >= 500 {
			t.Errorf("zone %.40s: got %s, want that it is refused", bomb, a)
		}
	}
	// Another program may have written what this one would refuse.
	for i, bomb := range bombs() {
		testapp.Must[any](t)(s.db.NewRaw("INSERT INTO scheduled_messages (name, payload_type, payload, cron_expression, cron_timezone, available_after, created_at) VALUES (?, 'p', '{}', ?, 'UTC', 0, 0)", fmt.Sprint("bomb-", i), bomb).Exec(t.Context()))
	}
	shown := 0
	for _, link := range parse(t, "schedules", s.must("schedules?name=").body).links {
		if route(link) == "schedule" {
			shown++
			if a := quickly(link, func() answer { return s.must(link) }); len(a.body) > mostBytes {
				t.Errorf("%q: got %d bytes", link, len(a.body))
			}
		}
	}
	if shown < len(bombs()) {
		t.Errorf("%d schedules are shown, want %d", shown, len(bombs()))
	}
}

// pauseForm is a change of the console, which works.
func pauseForm(t testing.TB) form {
	t.Helper()
	f, found := administratorsChanges(t)[pausing]
	if !found {
		t.Fatalf("no page has the form %q", pausing)
	}
	return f
}

// counted is a body that tells how much of it was read.
type counted struct {
	left, read int64
}

func (c *counted) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), c.left)
	for i := range p[:n] {
		p[i] = 'x'
	}
	c.left, c.read = c.left-n, c.read+n
	return int(n), nil
}

// TestAttack21LargeBodies: of what is too large no more is read than of what is not.
// Promise: console
func TestAttack21LargeBodies(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator)
	before := digest(t, s.db)
	pause := pauseForm(t)
	for _, length := range []int64{64 << 20, -1} { // -1: it does not say
		body := &counted{left: 64 << 20}
		a := s.send(func() *http.Request {
			r := request(http.MethodPost, pause.action, nil)
			r.Body, r.ContentLength = io.NopCloser(body), length
			return r
		})
		if a.status != http.StatusRequestEntityTooLarge || body.read > 2<<20 {
			t.Errorf("64 MiB, announced as %d: got %s after %d bytes, want status 413 after little more than a MiB", length, a, body.read)
		}
	}
	for kind, want := range map[string]int{"multipart/form-data; boundary=x": http.StatusUnsupportedMediaType,
		"application/json": http.StatusUnsupportedMediaType, "text/plain": http.StatusUnsupportedMediaType} {
		if a := s.post(pause.action, filledIn(pause), header("Content-Type", kind)); a.status != want {
			t.Errorf("%s: got %s, want status %d", kind, a, want)
		}
	}
	if digest(t, s.db) != before {
		t.Error("the database was changed")
	}
}

// TestAttack21SlowBodies: who sends a byte now and then keeps no connection for long.
// Promise: console
func TestAttack21SlowBodies(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator)
	before := digest(t, s.db)
	pause := pauseForm(t)
	server := httptest.NewServer(s.console)
	t.Cleanup(server.Close)
	name := strings.TrimPrefix(server.URL, "http://")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := testapp.Must[net.Conn](t)(new(net.Dialer).DialContext(ctx, "tcp", name))
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s%s HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000000\r\n\r\n%s&reason=", prefix, pause.action, name, name, filledIn(pause).Encode())
	drip := time.NewTicker(200 * time.Millisecond)
	defer drip.Stop()
	ended := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(conn)
		ended <- string(text)
	}()
	for {
		select {
		case <-drip.C:
			_, _ = conn.Write([]byte("x"))
		case text := <-ended:
			if strings.HasPrefix(text, "HTTP/1.1 2") || strings.HasPrefix(text, "HTTP/1.1 3") {
				t.Errorf("got %.300s", text)
			}
			if digest(t, s.db) != before {
				t.Error("the database was changed")
			}
			return
		case <-ctx.Done():
			_ = conn.Close()
			<-ended
			t.Fatal("after a minute the connection is still there")
		}
	}
}

// TestTooOften: what one person can ask for in a second is bounded, and others do not notice.
func TestTooOften(t *testing.T) {
	t.Parallel()
	db := inWorld(t, "normal")
	s := newSite(t, db, ops.Administrator, named("eve"))
	once := func(s *site, r *http.Request) int {
		w := httptest.NewRecorder()
		s.console.ServeHTTP(w, r)
		if w.Code == often && w.Header().Get("Retry-After") == "" {
			t.Error("nothing says when to try again")
		}
		return w.Code
	}
	refusedOf := func(n int, r func() *http.Request) (refused int64) {
		var count atomic.Int64
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				if once(s, r()) == often {
					count.Add(1)
				}
			})
		}
		wg.Wait()
		return count.Load()
	}
	if refused := refusedOf(200, func() *http.Request { return request(http.MethodGet, "doctor.css", nil) }); refused < 50 {
		t.Errorf("of 200 requests at once %d were refused, want most", refused)
	}
	s.name = "ada"
	if status := once(s, request(http.MethodGet, "no-such-page", nil)); status != http.StatusNotFound {
		t.Errorf("another person: got status %d, want 404", status)
	}
	pause := pauseForm(t)
	if refused := refusedOf(20, func() *http.Request { return request(http.MethodPost, pause.action, filledIn(pause)) }); refused < 10 {
		t.Errorf("of 20 changes at once %d were refused, want most", refused)
	}
}
