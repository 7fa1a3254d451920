package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/broker"
)

// Variable names the environment variable that makes this program a child. It
// holds the Request.
const Variable = "ASYNCMONOLITH_BENCH_CHILD"

// Request says what a child is to do.
type Request struct {
	// Contender is the name of the contender. It consumes until the end.
	Contender string
	// DSN names the database, in which the contender is installed already.
	DSN string
	// Idle makes it a process of ours with nothing to do; Contender is ignored.
	Idle bool
	// Tenants is how many an idle process serves.
	Tenants int
	// Place is that of a relay, or a receiver.
	Place broker.Address
	// Record asks for the start of every run.
	Record bool
}

// Response is what a child found.
type Response struct {
	// Handled is how many times the handler ran, and Sum the sum of the ids it was given.
	Handled, Sum int64
	// Starts are the starts of all runs, when they were asked for.
	Starts []Start
	// CPU is the processor time of the child, and Statements the number of SQL
	// statements it sent, since the mark. Statements are only counted when idle.
	CPU        time.Duration
	Statements int64
	// Err says what went wrong. Empty means nothing.
	Err string
}

// Start is when a run began.
type Start struct {
	ID int64
	At int64 // in nanoseconds since 1970, on the clock that all processes of a machine share
}

// Process is a running child. It is for one goroutine.
type Process struct {
	command   *exec.Cmd
	in        io.WriteCloser
	finishing atomic.Bool
	ended     chan struct{} // closed when found and err are set
	found     Response
	err       error
}

const ready = "ready"

// Spawn starts a child and waits until it has connected. A child that ends
// before [Process.Finish] is reported to fail.
func Spawn(ctx context.Context, r Request, fail func(error)) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	request, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	p := &Process{command: exec.CommandContext(ctx, program), ended: make(chan struct{})}
	p.command.Env = append(os.Environ(), Variable+"="+string(request))
	p.command.Stderr = os.Stderr
	if p.in, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	answers := bufio.NewReader(out)
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start child: %w", err)
	}
	if line, err := answers.ReadString('\n'); err != nil || strings.TrimSpace(line) != ready {
		return nil, errors.Join(fmt.Errorf("child said %q, want %q", line, ready), err, p.in.Close(), p.command.Wait())
	}
	go p.await(answers, fail)
	return p, nil
}

// await reads the response and the end of the child.
func (p *Process) await(answers io.Reader, fail func(error)) {
	defer close(p.ended)
	p.err = errors.Join(json.NewDecoder(answers).Decode(&p.found), p.command.Wait())
	if p.err == nil && p.found.Err != "" {
		p.err = errors.New(p.found.Err)
	}
	if p.err != nil {
		p.err = fmt.Errorf("child: %w", p.err)
	}
	if !p.finishing.Load() {
		fail(errors.Join(errors.New("a child ended early"), p.err))
	}
}

// Go makes the child begin its work.
func (p *Process) Go() error { return p.say(wordGo) }

// Mark makes the child begin to count what it uses.
func (p *Process) Mark() error { return p.say(wordMark) }

func (p *Process) say(word string) error {
	if _, err := io.WriteString(p.in, word+"\n"); err != nil {
		return fmt.Errorf("tell child %q: %w", word, err)
	}
	return nil
}

// Finish ends the child and returns what it found.
func (p *Process) Finish() (Response, error) {
	p.finishing.Store(true)
	closed := p.in.Close()
	<-p.ended
	return p.found, errors.Join(p.err, closed)
}
