package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// served is the console of a database, until the test ends.
type served struct {
	*testing.T
	link string
	role string
}

// serves runs the command, and reads where it is. At the end of the test it ends as with Ctrl-C, and must have
// logged nothing.
func serves(t *testing.T, dsn string, args ...string) served {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	read, write := io.Pipe()
	var logged strings.Builder
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"serve", "--json"}, args...),
			terminal{in: strings.NewReader(""), out: write, err: &logged, env: func(name string) string {
				if name == "ASYNCMONOLITH_DSN" {
					return dsn
				}
				return ""
			}})
		_ = write.Close()
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	var said struct{ URL, Role string }
	if err != nil || json.Unmarshal([]byte(line), &said) != nil {
		t.Fatalf("got %q, %v", line, err)
	}
	t.Cleanup(func() {
		cancel()
		if got := <-code; got != exitDone || logged.String() != "" {
			t.Errorf("ended: got exit code %d and %q, want 0 and nothing", got, logged.String())
		}
	})
	return served{t, said.URL, said.Role}
}

// browser is one with its own cookies.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport}
}

// ask is a request to the console, and the status and the text of its answer.
func (s served) ask(client *http.Client, method, address string, changes ...func(*http.Request)) (int, string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, address, nil)
	if err != nil {
		s.Fatal(err)
	}
	for _, change := range changes {
		change(r)
	}
	response, err := client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// address is that of a page.
func (s served) address(path string) string {
	s.Helper()
	u, err := url.Parse(s.link)
	if err != nil {
		s.Fatal(err)
	}
	u.Path, u.RawQuery = strings.TrimSuffix(u.Path, "enter")+path, ""
	return u.String()
}

// TestServeLetsOneBrowserIn: the link works once, and nobody else sees a page.
func TestServeLetsOneBrowserIn(t *testing.T) {
	t.Parallel()
	s := serves(t, database(t))
	if s.role != "viewer" || !strings.HasPrefix(s.link, "http://127.0.0.1:") {
		t.Errorf("got %+v, want a viewer's on this machine", s)
	}
	first, second := browser(t), browser(t)
	for _, path := range []string{"", "messages", "console.css", "enter", "enter?token=", "enter?token=x"} {
		if status, text := s.ask(second, http.MethodGet, s.address("")+path); status != http.StatusUnauthorized &&
			status != http.StatusForbidden || strings.Contains(text, "<") {
			t.Errorf("%q before: got status %d: %s", path, status, text)
		}
	}
	for _, method := range []string{http.MethodHead, http.MethodPost, http.MethodOptions} { // what only looks uses nothing up
		if status, _ := s.ask(second, method, s.link); status != http.StatusMethodNotAllowed {
			t.Errorf("%s of the link: got status %d, want 405", method, status)
		}
	}
	if status, _ := s.ask(second, http.MethodGet, s.link,
		func(r *http.Request) { r.Host = "evil.example" }); status != http.StatusMisdirectedRequest {
		t.Errorf("the link of another host: got status %d, want 421", status)
	}
	if status, text := s.ask(first, http.MethodGet, s.link); status != http.StatusOK || !strings.Contains(text, "<html") {
		t.Errorf("the link: got status %d: %s", status, text)
	}
	if status, _ := s.ask(second, http.MethodGet, s.link); status != http.StatusForbidden {
		t.Errorf("the link in another browser: got status %d, want 403", status)
	}
	if status, _ := s.ask(first, http.MethodGet, s.link); status != http.StatusOK {
		t.Errorf("the link in the same browser: got status %d, want 200", status)
	}
	for _, path := range []string{"", "messages", "console.css", "enter"} { // without the path that nobody else knows there is nothing
		root, err := url.Parse(s.address(""))
		if err != nil {
			t.Fatal(err)
		}
		root.Path = "/" + path
		if status, text := s.ask(first, http.MethodGet, root.String()); status != http.StatusNotFound || strings.Contains(text, "<") {
			t.Errorf("%q of the machine: got status %d, want 404: %s", path, status, text)
		}
	}
	if status, _ := s.ask(first, http.MethodGet, s.address("messages")); status != http.StatusOK {
		t.Errorf("messages: got status %d, want 200", status)
	}
	if status, _ := s.ask(second, http.MethodGet, s.address("messages")); status != http.StatusUnauthorized {
		t.Errorf("messages in another browser: got status %d, want 401", status)
	}
	if status, _ := s.ask(first, http.MethodGet, s.address("messages"),
		func(r *http.Request) { r.Host = "evil.example" }); status != http.StatusMisdirectedRequest {
		t.Errorf("messages of another host: got status %d, want 421", status)
	}
	change := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }
	if status, _ := s.ask(first, http.MethodPost, s.address("do"), change); status != http.StatusForbidden {
		t.Errorf("a change by a viewer: got status %d, want 403", status)
	}
}

// TestServeSendsItsCookieToNoOtherPort: a program on another port of the machine, to which browsers send the same cookies, gets none of
// what lets somebody in.
func TestServeSendsItsCookieToNoOtherPort(t *testing.T) {
	t.Parallel()
	s := serves(t, database(t))
	var sent atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent.Add(int64(len(r.Cookies()))) }))
	t.Cleanup(other.Close)
	b := browser(t)
	if status, _ := s.ask(b, http.MethodGet, s.link); status != http.StatusOK {
		t.Fatalf("the link: got status %d, want 200", status)
	}
	for _, path := range []string{"", "/", "/messages", "/enter"} {
		s.ask(b, http.MethodGet, other.URL+path)
	}
	if n := sent.Load(); n != 0 || !strings.HasPrefix(other.URL, "http://127.0.0.1:") {
		t.Errorf("%s: got %d cookies, want none", other.URL, n)
	}
	if status, _ := s.ask(b, http.MethodGet, s.address("messages")); status != http.StatusOK {
		t.Errorf("messages: got status %d, want 200", status)
	}
}

// TestServeRoles: what the browser may do is said by a flag, and by nothing else.
func TestServeRoles(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	change := func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	s := serves(t, dsn, "--role", "operator", "--run-operations")
	b := browser(t)
	s.ask(b, http.MethodGet, s.link)
	if status, text := s.ask(b, http.MethodPost, s.address("do"), change); status != http.StatusBadRequest {
		t.Errorf("a change by an operator that says nothing: got status %d, want 400: %s", status, text)
	}
	if status, _ := s.ask(b, http.MethodPost, s.address("export"), change); status != http.StatusForbidden {
		t.Errorf("an export by an operator: got status %d, want 403", status)
	}
	for _, args := range [][]string{{"--role", "none"}, {"--role", "root"}, {"--port", "65536"}, {"--port", "-1"}, {"more"}} {
		if got := called(t, dsn, append([]string{"serve"}, args...)...); got.code != exitUsage {
			t.Errorf("%v: got %+v, want exit code %d", args, got, exitUsage)
		}
	}
	taken := strings.Split(strings.TrimPrefix(s.address(""), "http://127.0.0.1:"), "/")[0]
	if got := called(t, dsn, "serve", "--port", taken); got.code != exitError || !strings.Contains(got.err, "in use") {
		t.Errorf("a port that is taken: got %+v", got)
	}
	if got := called(t, "sqlite:/no/such/file.db", "serve"); got.code == exitDone {
		t.Errorf("no database: got %+v", got)
	}
}

// TestInvitation: who is let in without contents hears how to see them.
func TestInvitation(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		role    ops.Role
		content bool
		says    string
	}{
		{ops.Viewer, false, "for the role viewer, without contents: see --role and --show-payloads. Ctrl-C"},
		{ops.Viewer, true, "for the role viewer, without contents: see --role and --show-payloads. Ctrl-C"},
		{ops.Operator, false, "for the role operator, without contents: see --show-payloads. Ctrl-C"},
		{ops.Operator, true, "for the role operator. Ctrl-C"},
	} {
		var out bytes.Buffer
		s := &serveCommand{app: &app{output: &output{terminal: terminal{out: &out}}}, content: contentFlag{test.content}}
		if err := s.writeLink(newLogin(1, ops.Principal{Role: test.role}), test.role); err != nil || !strings.Contains(out.String(), test.says) {
			t.Errorf("%+v: got %q, error %v", test, out.String(), err)
		}
	}
}
