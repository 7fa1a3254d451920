//go:build unix

package chaos_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Bar 12: hostile input. The targets stand beside what they test; `make fuzz`
// finds them all and gives each its time.

func barHostile(b *bar) {
	cmd := exec.Command("make", "--no-print-directory", "fuzz", "FUZZTIME="+pick(b, "1s", "5s", "30s"))
	cmd.Dir = filepath.Join("..", "..")
	output, err := cmd.CombinedOutput()
	if err != nil {
		b.Errorf("make fuzz: %v\n%s", err, output)
	}
	targets := strings.Split(string(output), "\n== ")[1:]
	if len(targets) < 6 {
		b.Errorf("targets: got %d, want at least the 6 of the bar:\n%s", len(targets), output)
	}
	last := regexp.MustCompile(`execs: (\d+)`)
	for _, target := range targets {
		name, _, _ := strings.Cut(target, "\n")
		inputs := last.FindAllStringSubmatch(target, -1)
		if len(inputs) == 0 {
			b.Errorf("%s: got no inputs, want some:\n%s", name, target)
			continue
		}
		b.figure("%s: %s inputs", name, inputs[len(inputs)-1][1])
	}
}
