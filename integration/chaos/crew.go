//go:build unix

package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Worker is a worker process as the run that started it sees it. It is not safe
// for concurrent use.
type Worker struct {
	config  WorkerConfig
	process *exec.Cmd
	output  lockedBuffer // that it is ready, and its report
	logged  lockedBuffer // and other last words
	ended   chan struct{}
	err     error // how it ended
}

// StartWorker starts this test binary as a worker, and waits until it can be
// signalled.
func StartWorker(config WorkerConfig) (*Worker, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("chaos: worker %s: %w", config.Name, err)
	}
	w := &Worker{config: config, process: exec.Command(os.Args[0]), ended: make(chan struct{})}
	w.process.Env = append(os.Environ(), WorkerVariable+"="+string(text))
	w.process.Stdout, w.process.Stderr = &w.output, &w.logged
	w.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w.process.WaitDelay = 5 * time.Second
	// Its end tells the worker that this process has gone, however it went.
	if _, err := w.process.StdinPipe(); err != nil {
		return nil, fmt.Errorf("chaos: worker %s: %w", config.Name, err)
	}
	if err := w.process.Start(); err != nil {
		return nil, fmt.Errorf("chaos: worker %s: %w", config.Name, err)
	}
	go func() { // Wait waits for it
		defer close(w.ended)
		w.err = w.process.Wait()
	}()
	for !strings.Contains(w.output.String(), ready) {
		select {
		case <-w.ended:
			if strings.Contains(w.output.String(), ready) {
				return w, nil // it was
			}
			return nil, fmt.Errorf("chaos: worker %s: it ended at once: %w: %s", config.Name, w.err, w.Log())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return w, nil
}

// Name is the name in the ledger.
func (w *Worker) Name() string { return w.config.Name }

// Signal sends a signal. A worker that has ended does not mind.
func (w *Worker) Signal(s syscall.Signal) { _ = w.process.Process.Signal(s) }

// Kill kills the worker and waits for its end. A worker that has ended by itself
// is an error: what it died of must not be taken for the kill.
func (w *Worker) Kill() error {
	select {
	case <-w.ended:
		return fmt.Errorf("chaos: worker %s: it had ended by itself: %w: %s", w.Name(), w.err, w.Log())
	default:
	}
	w.Signal(syscall.SIGKILL)
	<-w.ended
	return nil
}

// Ended is closed when the process has ended.
func (w *Worker) Ended() <-chan struct{} { return w.ended }

// stopPatience is how long a worker may take to stop before it is asked what it
// is doing, and killed.
const stopPatience = 2 * time.Minute

// Stop sends SIGTERM and returns what the worker reports when it has ended, and
// how long that took.
func (w *Worker) Stop() (Report, time.Duration, error) {
	begun := time.Now()
	w.Signal(syscall.SIGTERM)
	select {
	case <-w.ended:
	case <-time.After(stopPatience):
		w.Signal(syscall.SIGQUIT) // its stacks go to the log
		pause(time.Second)
		w.Signal(syscall.SIGKILL)
		<-w.ended
	}
	took := time.Since(begun)
	var report Report
	if w.err != nil {
		return report, took, fmt.Errorf("chaos: worker %s: %w: %s", w.Name(), w.err, w.Log())
	}
	text := strings.TrimPrefix(w.output.String(), ready)
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		return report, took, fmt.Errorf("chaos: worker %s: report %q: %w", w.Name(), text, err)
	}
	return report, took, nil
}

// Log is what the worker has logged so far.
func (w *Worker) Log() string { return w.logged.String() }

// LogLine is what a worker logged.
type LogLine struct {
	Time  time.Time
	Level string
	Msg   string
}

// LogLines are the lines that the worker has logged so far; strays are those that no
// logger wrote, such as a report of the race detector.
func (w *Worker) LogLines() (lines []LogLine, strays []string) {
	for text := range strings.Lines(w.Log()) {
		if !strings.HasSuffix(text, "\n") {
			continue // the rest of it is on its way
		}
		var line LogLine
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Time.IsZero() {
			strays = append(strays, strings.TrimSpace(text))
			continue
		}
		lines = append(lines, line)
	}
	return lines, strays
}

// ExitCode is how the process ended: its code, or -1 when a signal ended it or it
// has not ended yet.
func (w *Worker) ExitCode() int {
	select {
	case <-w.ended:
		return w.process.ProcessState.ExitCode()
	default:
		return -1
	}
}

// CPU is the processor time that the worker has used so far. It is known on Linux
// only.
func (w *Worker) CPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.process.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("chaos: worker %s: %w", w.Name(), err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name before it may hold anything
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("chaos: worker %s: stat %q", w.Name(), text)
	}
	user, errUser := strconv.Atoi(fields[11])
	system, errSystem := strconv.Atoi(fields[12])
	if err := errors.Join(errUser, errSystem); err != nil {
		return 0, fmt.Errorf("chaos: worker %s: %w", w.Name(), err)
	}
	return time.Duration(user+system) * (time.Second / 100), nil // the kernel's unit, on every platform there is
}

// lockedBuffer is a buffer that may be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
