package arch_test

import (
	"errors"
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

// TestIndexesListEveryPage: llms.txt and docs/README.md link to each page below docs.
func TestIndexesListEveryPage(t *testing.T) {
	t.Parallel()
	violations, err := unlisted(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range violations {
		t.Error(violation)
	}
}

func TestUnlistedPagesAreFound(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"llms.txt":            {Data: []byte("- [Guides](docs/README.md)\n- [A](docs/a.md#part): a\n- [Decisions](docs/adr/README.md)\n")},
		"docs/README.md":      {Data: []byte("[A](a.md) and [B](sub/b.md), [decisions](adr/README.md), c.md without a link\n")},
		"docs/a.md":           {},
		"docs/c.md":           {},
		"docs/sub/b.md":       {},
		"docs/adr/README.md":  {},
		"docs/adr/0001-it.md": {}, // the README beside it lists it
		"docs/a.json":         {},
	}
	want := []string{
		"docs/README.md does not link to docs/c.md", "llms.txt does not link to docs/c.md", "llms.txt does not link to docs/sub/b.md",
	}
	if got, err := unlisted(files); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q and error %v, want %q", got, err, want)
	}
	if _, err := unlisted(fstest.MapFS{}); err == nil {
		t.Error("got no error without any page")
	}
}

// unlisted returns a line for each page below docs that an index does not link to.
func unlisted(fsys fs.FS) (violations []string, err error) {
	var pages []string
	err = fs.WalkDir(fsys, "docs", func(name string, entry fs.DirEntry, err error) error {
		decision := path.Dir(name) == "docs/adr" && path.Base(name) != "README.md"
		if err == nil && !entry.IsDir() && path.Ext(name) == ".md" && !decision {
			pages = append(pages, name)
		}
		return err
	})
	if err == nil && len(pages) == 0 {
		err = errors.New("there are no pages")
	}
	if err != nil {
		return nil, err
	}
	for _, index := range []string{"docs/README.md", "llms.txt"} {
		listed, err := linked(fsys, index)
		if err != nil {
			return nil, err
		}
		for _, page := range pages {
			if page != index && !slices.Contains(listed, page) {
				violations = append(violations, fmt.Sprintf("%s does not link to %s", index, page))
			}
		}
	}
	return violations, nil
}

// linked returns the files of the repository that a page links to.
func linked(fsys fs.FS, page string) (files []string, err error) {
	text, err := fs.ReadFile(fsys, page)
	for _, link := range regexp.MustCompile(`\]\(([^)#\s]+)`).FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(link[1], "://") {
			files = append(files, path.Join(path.Dir(page), link[1]))
		}
	}
	return files, err
}
