package arch_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestLinks follows the links of all pages to files, and to headings of pages.
func TestLinks(t *testing.T) {
	t.Parallel()
	violations, err := brokenLinks(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range violations {
		t.Error(violation)
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"README.md": {Data: []byte("# Top\n[a](docs/a.md#one-two), [b](docs/b.md), [site](https://example.com#x), [top](#top), [low](#low), ![p](p.png)\n")},
		"docs/a.md": {Data: []byte("## One, `two`\n```\n# code [c](c.md)\n```\n[up](../README.md#code) <a id=\"old\"></a> [old](a.md#old) [dir](../docs)\n")},
	}
	want := []string{
		"README.md links to docs/b.md, which is not there", "README.md links to README.md#low, which has no such heading",
		"README.md links to p.png, which is not there", "docs/a.md links to README.md#code, which has no such heading",
	}
	if got, err := brokenLinks(files); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q and error %v, want %q", got, err, want)
	}
}

// brokenLinks returns a line for each link of a page that leads nowhere.
func brokenLinks(fsys fs.FS) (violations []string, err error) {
	var pages []string
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if err == nil && path.Ext(name) == ".md" {
			pages = append(pages, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		text, err := prose(fsys, page)
		if err != nil {
			return nil, err
		}
		for _, link := range regexp.MustCompile(`\]\(([^)\s#]*)(#[^)\s]*)?\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], ":") {
				continue
			}
			target := page
			if link[1] != "" {
				target = path.Join(path.Dir(page), link[1])
			}
			if violation := broken(fsys, target, strings.TrimPrefix(link[2], "#")); violation != "" {
				violations = append(violations, fmt.Sprintf("%s links to %s", page, violation))
			}
		}
	}
	return violations, nil
}

func broken(fsys fs.FS, target, anchor string) string {
	if _, err := fs.Stat(fsys, target); err != nil {
		return target + ", which is not there"
	}
	if anchor == "" || path.Ext(target) != ".md" {
		return ""
	}
	text, err := prose(fsys, target)
	if err != nil {
		return err.Error()
	}
	if slices.Contains(anchors(text), anchor) {
		return ""
	}
	return fmt.Sprintf("%s#%s, which has no such heading", target, anchor)
}

// prose is a page without its blocks of code.
func prose(fsys fs.FS, page string) (string, error) {
	text, err := fs.ReadFile(fsys, page)
	return regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(string(text), ""), err
}

// anchors are the names of headings, as GitHub makes them, and of elements with an id.
func anchors(text string) (names []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		title := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(strings.ToLower(heading[1]), "$1")
		title = regexp.MustCompile(`[^\p{L}\p{N}\-_ ]`).ReplaceAllString(title, "")
		names = append(names, strings.ReplaceAll(strings.TrimSpace(title), " ", "-"))
	}
	for _, id := range regexp.MustCompile(`id="([^"]+)"`).FindAllStringSubmatch(text, -1) {
		names = append(names, id[1])
	}
	return names
}
