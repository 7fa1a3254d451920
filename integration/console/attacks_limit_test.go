package console_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// mostBytes is what a page may weigh at most, whatever is asked of it and whatever the database has.
const mostBytes = 2 << 20

// TestAttack19NumbersWithoutLimits: sizes, pages, dates and rates that nobody means.
func TestAttack19NumbersWithoutLimits(t *testing.T) {
	t.Parallel()
	numbers := []string{"9223372036854775808", "9223372036854775807", "-9223372036854775808", "-1", "0", "1e309", "NaN", "0x7fffffffffffffff", strings.Repeat("9", 2000), "999999h", "9999999999h", "-5m", "292277026596-12-04T15:30:08", "0000-00-00T00:00", "10000-01-01 00:00:00"}
	s := newSite(t, inWorld(t, "normal"), ops.Administrator)
	askEach(t, s, numbers, func(path string, a answer) {
		if a.status >= 500 || len(a.body) > mostBytes {
			t.Errorf("%.300s: got %d bytes of %s", path, len(a.body), a)
		}
	})
	forms, turn := administratorsChanges(t), 0
	for _, action := range slices.Sorted(maps.Keys(forms)) {
		f := forms[action]
		for name := range f.fields {
			for _, number := range some(numbers, 2, &turn) {
				form := filledIn(f)
				form.Set(name, number)
				if a := s.post(f.action, form); a.status >= 500 {
					t.Errorf("%s with %s=%.50s: got %s", action, name, number, a)
				}
			}
		}
		form := filledIn(f)
		for i := range 100_000 {
			form.Add("id", fmt.Sprint(i))
		}
		if a := s.post(f.action, form); a.status >= 500 {
			t.Errorf("%s of 100,000 ids: got %s", action, a)
		}
	}
	for query, want := range map[string]int{
		"SELECT count(*) FROM message_operations WHERE rate < 0 OR rate > 100000 OR canary > 500":                   0,
		"SELECT count(*) FROM consumer_messages WHERE available_after > 253402300800000000 OR available_after < 0":  0,
		"SELECT count(*) FROM message_operations WHERE state = 'done' AND json_array_length(target, '$.ids') > 500": 0,
	} {
		if got := count(t, s.db, query); got != want {
			t.Errorf("%s: got %d, want %d", query, got, want)
		}
	}
	for _, path := range []string{"messages?consumer=" + strings.Repeat("x", 9<<10), "?" + strings.Repeat("a&", 5000), "?" + strings.Repeat("%", 100), "messages?a=%zz"} {
		if a := s.get(path); a.status < 400 || a.status >= 500 {
			t.Errorf("%.50s: got %s, want that it is refused", path, a)
		}
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
		"0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 29 2 1", strings.Repeat("*/1,", 50_000) + "* * * * *", "0-59" + strings.Repeat(",0-59", 10_000) + " * * * *",
		"*/0 * * * *", "*/99999999999999999999 * * * *", "0-99999999999 * * * *", "@every 1ns", "@every -1h", "TZ=../../etc/passwd * * * * *", "CRON_TZ=" + strings.Repeat("A/", 5000) + " * * * * *", "* * * * * * * * * *", "59 23 31 12 *",
	}
}

// TestAttack20CronBombs: what stands in a schedule, or is typed into its form, is bounded.
func TestAttack20CronBombs(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator)
	f, found := administratorsChanges(t)["do update schedule"]
	if !found {
		t.Fatal("no form changes a schedule")
	}
	for _, bomb := range bombs() {
		form := filledIn(f)
		form.Set("expression", bomb)
		if a := s.post(f.action, form); a.status >= 500 {
			t.Errorf("%.40s: got %s", bomb, a)
		}
		form = filledIn(f)
		form.Set("zone", bomb)
		if a := s.post(f.action, form); a.status < 400 || a.status >= 500 {
			t.Errorf("zone %.40s: got %s, want that it is refused", bomb, a)
		}
	}
	if n := count(t, s.db, "SELECT count(*) FROM scheduled_messages WHERE length(cron_expression) > 1000"); n > 0 {
		t.Errorf("%d schedules have an expression that is a bomb", n)
	}
	// Another program may have written what this one would refuse.
	for i, bomb := range bombs() {
		testapp.Must[any](t)(s.db.NewRaw("INSERT INTO scheduled_messages (name, payload_type, payload, cron_expression, cron_timezone, available_after, created_at) VALUES (?, 'p', '{}', ?, 'UTC', 0, 0)", fmt.Sprint("bomb-", i), bomb).Exec(t.Context()))
	}
	shown := 0
	for _, link := range parse(t, "schedules", s.must("schedules?name=").body).links {
		if route(link) == "schedule" {
			shown++
			if a := s.must(link); len(a.body) > mostBytes {
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
	for kind, want := range map[string]int{"multipart/form-data; boundary=x": http.StatusUnsupportedMediaType, "application/json": http.StatusUnsupportedMediaType, "text/plain": http.StatusUnsupportedMediaType} {
		if a := s.post(pause.action, filledIn(pause), header("Content-Type", kind)); a.status != want {
			t.Errorf("%s: got %s, want status %d", kind, a, want)
		}
	}
	if digest(t, s.db) != before {
		t.Error("the database was changed")
	}
}

// TestAttack21SlowBodies: who sends a byte now and then keeps no connection for long.
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
	refused := 0
	for range 200 {
		if once(s, request(http.MethodGet, "doctor.css", nil)) == often {
			refused++
		}
	}
	if refused < 50 {
		t.Errorf("of 200 requests at once %d were refused, want most", refused)
	}
	s.name = "ada"
	if status := once(s, request(http.MethodGet, "no-such-page", nil)); status != http.StatusNotFound {
		t.Errorf("another person: got status %d, want 404", status)
	}
	refused = 0
	pause := pauseForm(t)
	for range 20 {
		if once(s, request(http.MethodPost, pause.action, filledIn(pause))) == often {
			refused++
		}
	}
	if refused < 10 {
		t.Errorf("of 20 changes at once %d were refused, want most", refused)
	}
}
