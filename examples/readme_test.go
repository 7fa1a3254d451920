package examples_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// around is what a reader of the README has to add for its code to compile, block by
// block: "%" stands for the block as it is printed.
var around = map[string]string{
	"examples/first/main.go program": `%`,
}

// TestReadmeCompiles compiles the README's Go code as it is printed.
func TestReadmeCompiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- snippet: (\\S+ \\S+) -->\n```go\n(.*?)```\n").FindAllStringSubmatch(string(text), -1)
	for _, block := range found {
		before, after, ok := strings.Cut(around[block[1]], "%")
		if !ok {
			t.Errorf("block %q of the README is not compiled: say what is around it", block[1])
			continue
		}
		if out, err := compile(t.Context(), t.TempDir(), before+"\n"+block[2]+"\n"+after+"\n"); err != nil {
			t.Errorf("block %q of the README does not compile: %v\n%s", block[1], err, out)
		}
	}
	if len(found) != len(around) {
		t.Errorf("blocks: got %d, want %d", len(found), len(around))
	}
}

// compile builds a package that is not there, beside this one.
func compile(ctx context.Context, dir, program string) (string, error) {
	source := filepath.Join(dir, "readme.go")
	here, err := filepath.Abs("readme/readme.go")
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{here: source}})
	if err != nil {
		return "", err
	}
	for file, text := range map[string]string{source: program, filepath.Join(dir, "overlay.json"): string(overlay)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	args := []string{"build", "-o", os.DevNull, "-overlay", filepath.Join(dir, "overlay.json"), "./readme"}
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	return string(out), err
}
