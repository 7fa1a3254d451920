package main

// The command has no other way in than its arguments.

import (
	"strings"
	"testing"
)

// Where nobody sits at a terminal, top says what there is instead.
func TestTopRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--dsn", "sqlite:x"}, "needs a terminal"},
		{[]string{"--json"}, "status --json"},
		{[]string{"--interval", "1ms"}, "200ms or more"},
	} {
		code, out, failed := runDemo(t.Context(), append([]string{"top"}, c.args...)...)
		if code != exitUsage || out != "" || !strings.Contains(failed, c.says) {
			t.Errorf("%q: got %d, %s%s, want it to say %q", c.args, code, out, failed, c.says)
		}
	}
}
