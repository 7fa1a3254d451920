package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/console"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// picture is one of a page.
type picture struct {
	name          string
	path          string
	click         string // what to follow from there, one after the other, with "; " between; empty: nothing
	theme         string
	width, height int64 // a height of 0: all of it
}

// pictures are those that are kept.
func pictures() []picture {
	return []picture{
		{name: "overview", theme: "light", width: 1280, height: 900},
		{name: "overview-dark", theme: "dark", width: 1280, height: 900},
		{name: "group", path: "poisoned?consumer=charge-card", click: `main td a[href^="group?"]`, theme: "light", width: 1280, height: 900},
		{name: "consumer", path: "consumer?name=charge-card", theme: "light", width: 1280, height: 900},
		{name: "operation", path: "operations", click: `main a[href="operation?id=7"]`, theme: "light", width: 1280, height: 900},
		{name: "phone", path: "poisoned", theme: "dark", width: 390, height: 800},
	}
}

// tour is every page, in both themes and three widths, whole: to look at, not to keep.
func tour() (all []picture) {
	pages := []picture{
		{name: "overview"}, {name: "consumer", path: "consumer?name=charge-card"}, {name: "messages", path: "messages"},
		{name: "message", path: "messages", click: `main a[href^="message?"]`}, {name: "find", path: "find"},
		{name: "poisoned", path: "poisoned"}, {name: "group", path: "poisoned?consumer=charge-card", click: `main td a[href^="group?"]`},
		{name: "poisoned-message", path: "group?consumer=charge-card", click: `main a[href^="message?"]`},
		{name: "edit", path: "group?consumer=charge-card", click: `main a[href^="message?"]; main a[href^="edit?"]`},
		{
			name: "suspects", path: "suspects",
		}, {name: "schedules", path: "schedules"}, {name: "schedule", path: "schedules", click: `main a[href^="schedule?"]`},
		{
			name: "processes", path: "processes",
		}, {name: "projections", path: "projections"}, {name: "projection", path: "projections", click: `main a[href^="projection?"]`},
		{name: "operations", path: "operations"}, {name: "operation", path: "operations", click: `main a[href="operation?id=7"]`},
		{name: "doctor", path: "doctor"}, {name: "confirm", path: "confirm?do=pause&consumer=charge-card"}, {name: "error", path: "nowhere"},
		{name: "none", path: "messages?consumer=nobody"},
	}
	for _, p := range pages {
		for _, theme := range []string{"light", "dark"} {
			for _, width := range []int64{1400, 800, 360} {
				look := p
				look.name, look.theme, look.width = fmt.Sprintf("%s-%s-%d", p.name, theme, width), theme, width
				all = append(all, look)
			}
		}
	}
	return all
}

func main() {
	into := flag.String("into", filepath.Join("docs", "console"), "folder of the pictures")
	everything := flag.Bool("tour", false, "every page in both themes and three widths, whole")
	flag.Parse()
	if err := run(context.Background(), *into, *everything); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, into string, everything bool) (err error) {
	dir, err := os.MkdirTemp("", "asyncmonolith-pictures")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	pages, end, err := open(ctx, filepath.Join(dir, "demo.db"))
	if err != nil {
		return err
	}
	defer end()
	server := httptest.NewServer(pages)
	defer server.Close()
	options := append(
		slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.DisableGPU, chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("lang", "en-US"),
	)
	allocator, stop := chromedp.NewExecAllocator(ctx, options...)
	defer stop()
	ctx, cancel := chromedp.NewContext(allocator)
	defer cancel()
	if err := errors.Join(os.MkdirAll(into, 0o755), chromedp.Do(ctx)); err != nil {
		return err
	}
	wanted := pictures()
	if everything {
		wanted = tour()
	}
	for _, p := range wanted {
		if err := p.take(ctx, server.URL+"/asyncmonolith/", into); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// open makes the demonstration's database, and a console for it.
func open(ctx context.Context, path string) (pages http.Handler, end func(), err error) {
	if output, err := exec.CommandContext(ctx, "go", "run", "./cmd/asyncmonolith", "demo", "--path", path).CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("demo: %w\n%s", err, output)
	}
	conns, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(15000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, nil, err
	}
	registry, err := bus.NewRegistry()
	if err != nil {
		return nil, nil, errors.Join(err, conns.Close())
	}
	service, err := ops.New(ops.Config{DB: bun.NewDB(conns, sqlitedialect.New()), Registry: registry, Redact: ops.ShowAll})
	if err != nil {
		return nil, nil, errors.Join(err, conns.Close())
	}
	pages, err = console.New(service, console.Config{Environment: "staging", Authorize: func(*http.Request) (ops.Principal, error) {
		return ops.Principal{Name: "ada@shop.example", Role: ops.Administrator}, nil
	}})
	return pages, func() { _ = conns.Close() }, err
}

// take takes the picture.
func (p picture) take(ctx context.Context, base, into string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	media := emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: p.theme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media); err != nil {
		return err
	}
	height := p.height
	if height == 0 {
		height = 900
	}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(p.width, height), chromedp.Navigate(base+p.path)); err != nil {
		return err
	}
	for click := range strings.SplitSeq(p.click, "; ") {
		if click == "" {
			continue
		}
		there, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector(%q)?.href ?? ""`, click)))
		if err != nil {
			return err
		}
		if there == "" {
			return fmt.Errorf("%s has nothing like %s", p.path, click)
		}
		if err := chromedp.Do(ctx, chromedp.Navigate(there)); err != nil {
			return err
		}
	}
	whole := p.height == 0
	shot, err := chromedp.Call(
		ctx, page.CaptureScreenshot,
		page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng, CaptureBeyondViewport: &whole},
	)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(into, p.name+".png"), shot.Data, 0o644)
}
