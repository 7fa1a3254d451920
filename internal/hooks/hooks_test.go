package hooks_test

import (
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
)

var _ = hooks.Provide(hooks.Functions{"test.Double": func(n int) int { return 2 * n }})

func TestFunctionReturnsTheProvidedOne(t *testing.T) {
	t.Parallel()
	if got := hooks.Function[func(int) int]("test.Double")(4); got != 8 {
		t.Errorf("test.Double(4): got %d, want 8", got)
	}
}

func TestAFunctionOfAnotherTypePanics(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"test.Double", "test.Missing"} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, name) {
					t.Errorf("%s: got the panic %q, want one that names it", name, text)
				}
			}()
			hooks.Function[func(string) string](name)
		}()
	}
}
