//go:build unix

package chaos_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// Who interrupts a run finds neither its server running nor its directories.
func TestInterruptedRunLeavesNothing(t *testing.T) {
	t.Parallel()
	var output bytes.Buffer
	cmd := exec.Command(os.Args[0], "-test.run", "^TestBars$", "-bar", "2-stops")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &output, &output, time.Second
	testapp.OK(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	b := &bar{T: t}
	ours := filepath.Join("/tmp", fmt.Sprintf("chaos-db.%d.*", cmd.Process.Pid))
	var server int
	b.eventually(time.Minute, "the run's server is there", func() bool {
		files, _ := filepath.Glob(filepath.Join(ours, "data", "postmaster.pid"))
		if len(files) == 0 {
			return false
		}
		text, _ := os.ReadFile(files[0])
		first, _, _ := strings.Cut(string(text), "\n")
		server, _ = strconv.Atoi(first)
		return server > 0
	})
	testapp.OK(t, cmd.Process.Signal(syscall.SIGTERM))
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Errorf("interrupted run: got %v, want it to fail: %s", err, &output)
	}
	if left, _ := filepath.Glob(ours); len(left) > 0 {
		t.Errorf("directories: got %q left behind, want none: %s", left, &output)
	}
	b.eventually(5*time.Second, "the run's server has ended", func() bool { return errors.Is(syscall.Kill(server, 0), syscall.ESRCH) })
}
