package main

import (
	"os"
	"path/filepath"
	"regexp"
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
	deeper, err := filepath.Glob("../../docs/[br]*/*.md") // brokers and reference
	if err != nil || len(deeper) < 3 {
		t.Fatalf("got %d pages and error %v, want those of brokers and the reference", len(deeper), err)
	}
	named := 0
	for _, guide := range append(append(guides, deeper...), "../../README.md") {
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

func child(c *cobra.Command, name string) *cobra.Command {
	for _, sub := range c.Commands() {
		if sub.Name() == name {
			return sub
		}
	}
	return nil
}

func commandTree() *cobra.Command { return (&app{output: new(output)}).root() }
