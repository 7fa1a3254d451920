package examples_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the code into the documents")

// TestSnippets keeps the Go code in the documents equal to code that is
// compiled and tested. A snippet in a document is introduced by
//
//	<!-- snippet: examples/quickstart/main.go wiring -->
//
// and stands in that file between the lines "// snippet: wiring" and "// end". -update writes them anew.
func TestSnippets(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := filepath.Glob("../docs/[br]*/*.md") // brokers and reference
	if err != nil {
		t.Fatal(err)
	}
	documents = append(append(documents, deeper...), "../README.md", "../ARCHITECTURE.md")
	marked := regexp.MustCompile("(?s)<!-- snippet: (\\S+) (\\S+) -->\n```go\n(.*?)```\n")
	blocks := 0
	for _, document := range documents {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		found := marked.FindAllStringSubmatch(string(text), -1)
		if all := strings.Count(string(text), "```go\n"); all != len(found) {
			t.Errorf("%s: %d of %d Go snippets are marked with the code they are cut from", document, len(found), all)
		}
		for _, snippet := range found {
			blocks++
			file, name, got := snippet[1], snippet[2], snippet[3]
			want := cut(t, filepath.Join("..", file), name)
			switch {
			case got == want:
			case *update:
				text = []byte(strings.Replace(string(text), snippet[0], strings.TrimSuffix(snippet[0], got+"```\n")+want+"```\n", 1))
				if err := os.WriteFile(document, text, 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("%s: snippet %s of %s differs; the code is:\n%s", document, name, file, want)
			}
		}
	}
	if blocks == 0 {
		t.Error("no document has a snippet")
	}
}

// cut returns the lines of a snippet, with their common indentation removed.
func cut(t *testing.T, file, name string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "// snippet: "+name+"\n")
	if !ok {
		t.Fatalf("%s has no snippet %s", file, name)
	}
	body, _, ok := strings.Cut(after, "// end\n")
	if !ok {
		t.Fatalf("%s: snippet %s has no end", file, name)
	}
	lines := strings.Split(strings.Trim(body, "\n\t"), "\n")
	indent := ""
	for _, line := range strings.Split(body, "\n") {
		if trimmed := strings.TrimLeft(line, "\t"); trimmed != "" {
			indent = line[:len(line)-len(trimmed)]
			break
		}
	}
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, indent)
	}
	return strings.Join(lines, "\n") + "\n"
}
