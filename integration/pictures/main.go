package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// picture is one of a page.
type picture struct {
	name          string
	path          string
	click         string // what to follow from there; empty: nothing
	theme         string
	width, height int64 // a height of 0: all of it
}

// pictures are those that are kept.
func pictures() []picture {
	return []picture{
		{name: "overview", theme: "light", width: 1280, height: 900},
		{name: "overview-dark", theme: "dark", width: 1280, height: 900},
		{name: "group", path: "poisoned?consumer=charge-card", click: `main a[href^="group?"]`, theme: "light", width: 1280, height: 900},
		{name: "consumer", path: "consumer?name=charge-card", theme: "light", width: 1280, height: 900},
		{name: "operation", path: "operations", click: `main a[href="operation?id=7"]`, theme: "light", width: 1280, height: 900},
		{name: "phone", path: "poisoned", theme: "dark", width: 390, height: 800},
	}
}

// tour is every page, in both themes and two widths, whole: to look at, not to keep.
func tour() (all []picture) {
	pages := []picture{
		{name: "overview"}, {name: "consumer", path: "consumer?name=charge-card"}, {name: "messages", path: "messages"},
		{name: "message", path: "messages", click: `main a[href^="message?"]`}, {name: "find", path: "find"},
		{name: "poisoned", path: "poisoned"}, {name: "group", path: "poisoned?consumer=charge-card", click: `main a[href^="group?"]`},
		{name: "poisoned-message", path: "group?consumer=charge-card", click: `main a[href^="message?"]`},
		{name: "edit", path: "group?consumer=charge-card", click: `main a[href^="message?"], main a[href^="edit?"]`},
		{name: "suspects", path: "suspects"}, {name: "schedules", path: "schedules"}, {name: "schedule", path: "schedules", click: `main a[href^="schedule?"]`},
		{name: "processes", path: "processes"}, {name: "projections", path: "projections"}, {name: "projection", path: "projections", click: `main a[href^="projection?"]`},
		{name: "operations", path: "operations"}, {name: "operation", path: "operations", click: `main a[href="operation?id=7"]`},
		{name: "doctor", path: "doctor"}, {name: "confirm", path: "confirm?do=pause&consumer=charge-card"}, {name: "error", path: "nowhere"},
		{name: "none", path: "messages?consumer=nobody"},
	}
	for _, p := range pages {
		for _, theme := range []string{"light", "dark"} {
			for _, width := range []int64{1280, 360} {
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
	everything := flag.Bool("tour", false, "every page in both themes and two widths, whole")
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
	link, end, err := serve(ctx, dir)
	if err != nil {
		return err
	}
	defer end()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.DisableGPU, chromedp.NoSandbox, chromedp.Flag("hide-scrollbars", true), chromedp.Flag("lang", "en-US"))
	allocator, stop := chromedp.NewExecAllocator(ctx, options...)
	defer stop()
	ctx, cancel := chromedp.NewContext(allocator)
	defer cancel()
	if err := errors.Join(os.MkdirAll(into, 0o755), chromedp.Do(ctx, chromedp.Navigate(link))); err != nil {
		return err
	}
	wanted := pictures()
	if everything {
		wanted = tour()
	}
	for _, p := range wanted {
		if err := p.take(ctx, regexp.MustCompile(`enter\?.*`).ReplaceAllString(link, ""), into); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// serve makes the demonstration's database and shows it, and returns the link that lets a browser in.
func serve(ctx context.Context, dir string) (link string, end func(), err error) {
	binary, db := filepath.Join(dir, "asyncmonolith"), filepath.Join(dir, "demo.db")
	for _, args := range [][]string{{"go", "build", "-o", binary, "./cmd/asyncmonolith"}, {binary, "demo", "--path", db}} {
		if output, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", nil, fmt.Errorf("%s: %w\n%s", args[1], err, output)
		}
	}
	server := exec.CommandContext(ctx, binary, "serve", "--dsn", "sqlite:"+db, "--role", "administrator", "--content")
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		return "", nil, err
	}
	end = func() { _ = server.Process.Signal(os.Interrupt); _ = server.Wait() }
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		end()
		return "", nil, errors.New("serve has not said where it is")
	}
	return regexp.MustCompile(`http\S+`).FindString(lines.Text()), end, nil
}

// take takes the picture.
func (p picture) take(ctx context.Context, base, into string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: p.theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}
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
	if p.click != "" {
		there, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector(%q)?.href ?? ""`, p.click)))
		if err != nil {
			return err
		}
		if there == "" {
			return fmt.Errorf("%s has nothing like %s", p.path, p.click)
		}
		if err := chromedp.Do(ctx, chromedp.Navigate(there)); err != nil {
			return err
		}
	}
	whole := p.height == 0
	shot, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng, CaptureBeyondViewport: &whole})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(into, p.name+".png"), shot.Data, 0o644)
}
