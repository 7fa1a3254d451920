package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// axeFile is what scripts/need-chromium.sh has fetched.
var axeFile = filepath.Join("..", "..", ".cache", "axe-core-4.14.1.js") // immutable

// patience is how long the browser may take for anything, on a machine that others keep busy.
const patience = 90 * time.Second

// browser is the one that all tests share; each has tabs, and cookies, of its own.
type browser struct {
	once  sync.Once
	ctx   context.Context
	end   context.CancelFunc
	err   error
	axe   string
	slots chan struct{} // for as many tabs as work at a time
}

var chromium = &browser{slots: make(chan struct{}, 3)} // immutable but for its start

// start starts Chromium, with a profile that is gone with it.
func (b *browser) start() {
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		b.err = fmt.Errorf("run scripts/need-chromium.sh: %w", err)
		return
	}
	b.axe = string(axe)
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.DisableGPU,
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("lang", "en-US"))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	b.ctx, b.end = ctx, func() { cancel(); end() }
	if b.err = chromedp.Do(ctx); b.err != nil {
		b.err = fmt.Errorf("start Chromium (scripts/need-chromium.sh installs it): %w", b.err)
	}
}

// close ends Chromium, and waits until it is gone with all its files.
func (b *browser) close() error {
	if b.ctx == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	err := chromedp.Cancel(ctx)
	b.end()
	return err
}

// tab is a tab of the browser, which remembers what pages complain of.
type tab struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex
	troubles []string
}

// newTab opens a tab that is like one of another person: it shares no cookie with others. At the end of the test no page
// may have complained.
func newTab(t *testing.T) *tab {
	t.Helper()
	chromium.once.Do(chromium.start)
	if chromium.err != nil {
		t.Fatal(chromium.err)
	}
	chromium.slots <- struct{}{}
	b := &tab{T: t}
	ctx, cancel := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.hear))
	b.ctx = ctx
	t.Cleanup(func() {
		cancel()
		<-chromium.slots
		b.expectPeace("the test")
	})
	if err := chromedp.Do(ctx); err != nil { // with this context: the tab lives as long as the first one that it is given
		t.Fatal(err)
	}
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, log.Enable, cdp.Empty{})
		return err
	})
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, audits.Enable, cdp.Empty{})
		return err
	})
	b.look(1280, "light")
	return b
}

// hear notes what a page complains of: exceptions, errors and warnings in the console, and what its CSP keeps from it.
func (b *tab) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.note("exception: %s %s", e.ExceptionDetails.Text, e.ExceptionDetails.URL)
	case *runtime.EventConsoleAPICalled:
		text, _ := json.Marshal(e.Args)
		b.note("console.%s: %s", e.Type, text)
	case *log.EventEntryAdded:
		b.note("%s of %s: %s %s", e.Entry.Level, e.Entry.Source, e.Entry.Text, e.Entry.URL)
	case *audits.EventIssueAdded:
		if d := e.Issue.Details.ContentSecurityPolicyIssueDetails; d != nil {
			b.note("CSP report: %s: %s", d.ViolatedDirective, d.BlockedURL)
		}
	}
}

func (b *tab) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubles = append(b.troubles, fmt.Sprintf(format, args...))
}

// complaints are what was noted since the last time, but for what a page that is not there says of itself.
func (b *tab) complaints() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, b.troubles = b.troubles, nil
	return all
}

// expectPeace fails the test if a page has complained.
func (b *tab) expectPeace(where string) {
	b.Helper()
	for _, text := range b.complaints() {
		b.Errorf("%s: the browser complains: %s", where, text)
	}
}

// call does something in the tab, and ends the test if that fails.
func (b *tab) call(do func(ctx context.Context) error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := do(ctx); err != nil {
		b.Fatalf("browser: %v\n%s", err, strings.Join(b.complaints(), "\n"))
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	b.call(func(ctx context.Context) error { return chromedp.Do(ctx, steps...) })
}

// eval is the value of an expression of the page.
func eval[T any](b *tab, expression string) (value T) {
	b.Helper()
	b.call(func(ctx context.Context) (err error) {
		value, err = chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
		return err
	})
	return value
}

// look gives the tab a width and a theme.
func (b *tab) look(width int64, theme string) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, 900))
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
		})
		return err
	})
}

// scripts has the tab run scripts, or not.
func (b *tab) scripts(run bool) {
	b.Helper()
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !run})
		return err
	})
}

// visit opens a page and returns its status. One that says that the machine is busy is asked again.
func (b *tab) visit(address string) (status int64) {
	b.Helper()
	for range 20 {
		b.call(func(ctx context.Context) error {
			response, err := chromedp.Run(ctx, chromedp.NavigateResponse(address))
			if err == nil {
				status = response.Status
			}
			return err
		})
		if status != busy {
			return status
		}
		b.complaints() // the browser says of each that it is an error
	}
	return status
}

// mustVisit opens a page that must be there.
func (b *tab) mustVisit(address string) {
	b.Helper()
	if status := b.visit(address); status != 200 {
		b.Fatalf("%s: got status %d, want 200", address, status)
	}
}

// path is where the tab is, with its query.
func (b *tab) path() string {
	b.Helper()
	u, err := url.Parse(eval[string](b, "location.href"))
	if err != nil {
		b.Fatal(err)
	}
	return u.RequestURI()
}

// text is what a person reads on the page.
func (b *tab) text() string { b.Helper(); return eval[string](b, "document.body.innerText") }

// violation is what axe says of a page.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		FailureSummary string
	}
}

// accessible fails the test if the page has complained, or is not for everybody.
func (b *tab) accessible(where string) {
	b.Helper()
	b.expectPeace(where) // first: axe works on the page with means that its CSP forbids to others
	for _, text := range b.violations() {
		b.Errorf("%s: %s", where, text)
	}
	b.complaints()
}

// violations are what axe finds in the page that is open, and whether it is wider than the window.
func (b *tab) violations() (all []string) {
	b.Helper()
	b.call(func(ctx context.Context) error {
		if loaded, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("typeof axe === 'object'")); err != nil || loaded {
			return err
		}
		return chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](chromium.axe+"; undefined"))
	})
	for _, v := range eval[[]violation](b, `axe.run(document, {resultTypes: ["violations"], preload: false}).then(r => r.violations.map(v => ({ID: v.id, Impact: v.impact || "", Help: v.help, Nodes: v.nodes.slice(0, 3).map(n => ({HTML: n.html.slice(0, 300), FailureSummary: n.failureSummary || ""}))})))`) {
		all = append(all, fmt.Sprintf("axe: %s (%s): %s: %+v", v.ID, v.Impact, v.Help, v.Nodes))
	}
	if over := eval[int](b, "document.documentElement.scrollWidth - window.innerWidth"); over > 0 {
		all = append(all, fmt.Sprintf("it is %d pixels wider than the window", over))
	}
	return all
}

// TestTheBrowserComplains: what the tests of pages look for, they find on one that has it all.
func TestTheBrowserComplains(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad.js" {
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, `console.error("it went wrong"); document.body.innerHTML = "x"; throw new Error("and worse")`)
			return
		}
		w.Header().Set("Content-Security-Policy", "default-src 'self'; require-trusted-types-for 'script'")
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<html><body style="color: red"><img src="/missing.png"><p style="color: #999">grey</p><table width=2000><tr><td>wide</td></tr></table><script src="/bad.js"></script><script>alert(1)</script></body></html>`)
	}))
	t.Cleanup(server.Close)
	b := newTab(t)
	b.mustVisit(server.URL + "/")
	got := strings.Join(append(b.complaints(), b.violations()...), "\n")
	for _, want := range []string{"it went wrong", "exception", "CSP report: style-src", "CSP report: script-src", "TrustedHTML",
		"axe: image-alt", "axe: html-has-lang", "axe: document-title", "pixels wider"} {
		if !strings.Contains(got, want) {
			t.Errorf("got no %q in:\n%s", want, got)
		}
	}
	b.complaints()
}
