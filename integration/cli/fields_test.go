package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// TestFields: JSON has names in small letters, and those of each line stand in docs/reference/json.md.
func TestFields(t *testing.T) {
	t.Parallel()
	guide := testapp.Must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "docs", "reference", "json.md")))
	paths, err := filepath.Glob(filepath.Join("testdata", "json", "*.txt"))
	if err != nil || len(paths) < 50 {
		t.Fatalf("got %d goldens, %v", len(paths), err)
	}
	for _, path := range paths {
		if filepath.Base(path) == "asyncapi.txt" {
			continue // a document in AsyncAPI's form, not lines
		}
		text := testapp.Must[[]byte](t)(os.ReadFile(path))
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "{") {
				continue
			}
			var fields map[string]any
			line = regexp.MustCompile(`([:\[])(ID|MAIL)\b`).ReplaceAllString(line, "${1}1")
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatalf("%s: %v: %s", path, err, line)
			}
			for name := range fields {
				if name != "v" && !strings.Contains(string(guide), "`"+name+"`") {
					t.Errorf("%s: docs/reference/json.md does not have the field %q", path, name)
				}
			}
			for _, name := range regexp.MustCompile(`"(\w+)":`).FindAllStringSubmatch(line, -1) {
				if name[1] != strings.ToLower(name[1]) {
					t.Errorf("%s: field %q: want small letters", path, name[1])
				}
			}
			if fields["v"] != 1.0 {
				t.Errorf("%s: got version %v, want 1: %s", path, fields["v"], line)
			}
		}
	}
}
