package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// quotedSpan is what a guide has in backquotes.
var quotedSpan = regexp.MustCompile("`([^`\n]+)`") // immutable

// TestGuidesNameCommandsThatExist: a span that begins with a group of commands goes on with one of its commands.
func TestGuidesNameCommandsThatExist(t *testing.T) {
	root := commandTree()
	guides, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(guides) < 10 {
		t.Fatalf("got %d guides and error %v, want the guides", len(guides), err)
	}
	named := 0
	for _, guide := range append(guides, "../../README.md") {
		text, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range quotedSpan.FindAllStringSubmatch(string(text), -1) {
			words := strings.Fields(strings.TrimPrefix(span[1], "asyncmonolith "))
			if len(words) < 2 || !regexp.MustCompile(`^[a-z][a-z-]+$`).MatchString(words[1]) {
				continue
			}
			if group := child(root, words[0]); group != nil && group.HasSubCommands() {
				named++
				if child(group, words[1]) == nil {
					t.Errorf("%s names %q, which is no command", filepath.Base(guide), span[1])
				}
			}
		}
	}
	if named < 30 {
		t.Errorf("got %d commands in the guides, want more", named)
	}
}

// TestTheTableOfCommandsIsWhole: docs/cli.md lists each command, and none that there is not.
func TestTheTableOfCommandsIsWhole(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Commands\n\n")
	table, _, _ = strings.Cut(table, "\n\n")
	root := commandTree()
	var got []string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		group := ""
		for i, span := range quotedSpan.FindAllStringSubmatch(cells[1], -1) {
			words := strings.Fields(span[1])
			if c := child(root, words[0]); i == 0 && len(words) > 1 && c != nil && c.HasSubCommands() {
				group, words = words[0]+" ", words[1:]
			}
			got = append(got, group+words[0])
		}
	}
	var want []string
	for _, c := range root.Commands() {
		if c.Name() == "help" || c.Name() == "completion" {
			want = append(want, c.Name())
			continue
		}
		for _, sub := range c.Commands() {
			want = append(want, c.Name()+" "+sub.Name())
		}
		if !c.HasSubCommands() {
			want = append(want, c.Name())
		}
	}
	got = append(got, "help") // cobra's, which the help of the command names
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("docs/cli.md lists\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func child(c *cobra.Command, name string) *cobra.Command {
	for _, sub := range c.Commands() {
		if sub.Name() == name {
			return sub
		}
	}
	return nil
}

func commandTree() *cobra.Command { return (&app{output: new(output)}).root() }
