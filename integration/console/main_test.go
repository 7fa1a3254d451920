package console_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// all has every page looked at with all data, in both themes and widths, and on all databases: `make console-test`.
// Without it, each page has its turn once in each theme.
var all = flag.Bool("all", false, "look at every page with all data, in both themes and widths, and on all databases") // immutable

// suite closes what the tests share after the last of them, before anybody looks for goroutines.
type suite struct{ *testing.M }

func (s suite) Run() int {
	code := s.M.Run()
	if err := errors.Join(chromium.close(), command.remove()); err != nil {
		fmt.Fprintln(os.Stderr, "clean up:", err)
		return max(code, 1)
	}
	return code
}

func TestMain(m *testing.M) {
	flag.Parse()
	testapp.Main(suite{m})
}
