//go:build unix

package brokers

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// variable has the settings of the broker that a process is to be.
const variable = "ASYNCMONOLITH_TEST_BROKER"

// settings are what a process needs to know.
type settings struct {
	Kind   string // nats or kfake
	Name   string // of a node of a cluster
	Dir    string // what it keeps
	Ports  []int  // for clients
	Port   int    // for other nodes, 0 if it is alone
	Routes []int  // ports behind which other nodes are
	Hidden bool   // nodes do not tell each other of it
	Domain string // of JetStream
	Leaves int    // the port for leaf nodes, 0 if there are none
	Hub    int    // that of the server whose leaf node it is, 0 if it is none
}

// Main makes this process a broker, if it was started to be one, and does not return then.
func Main() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var s settings
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		switch s.Kind {
		case "nats":
			err = serveNATS(s)
		case "kfake":
			err = serveKfake(s)
		default:
			err = fmt.Errorf("there is no broker %q", s.Kind)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve says that the broker is ready, and does what is asked of it until nobody is there to ask.
func serve(commands map[string]func()) error {
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if run, ok := commands[lines.Text()]; ok {
			run()
		}
		fmt.Println("done")
	}
	return lines.Err()
}

// Process is a broker's process. Its methods are safe for concurrent use.
type Process struct {
	settings settings

	mu     sync.Mutex
	cmd    *exec.Cmd
	input  io.WriteCloser // it ends with this, so that it does not outlive the test
	output *bufio.Reader
}

// newProcess starts a process that is killed when the test ends.
func newProcess(t testing.TB, s settings) *Process {
	p := &Process{settings: s}
	t.Cleanup(func() { _ = p.Kill() })
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// Start starts the process, or lets it go on if it was paused, and returns when it is ready.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return p.signal(syscall.SIGCONT)
	}
	text, err := json.Marshal(p.settings)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a %s: %w", p.settings.Kind, err)
	}
	p.cmd, p.input, p.output = cmd, input, bufio.NewReader(output)
	if err := p.answer("ready"); err != nil {
		return errors.Join(err, p.kill())
	}
	return nil
}

// answer waits for a line of the process.
func (p *Process) answer(want string) error {
	late := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	line, err := p.output.ReadString('\n')
	if err != nil || line != want+"\n" {
		return fmt.Errorf("%s says %q, want %q: %w", p.settings.Kind, line, want, err)
	}
	return nil
}

// ask has the process do something, and waits until it has.
func (p *Process) ask(command string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s %s: it does not run", p.settings.Kind, command)
	}
	if _, err := fmt.Fprintln(p.input, command); err != nil {
		return err
	}
	return p.answer("done")
}

// Kill ends the process at once. It does nothing if there is none.
func (p *Process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kill()
}

func (p *Process) kill() error {
	if p.cmd == nil {
		return nil
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // says that it was killed
	p.cmd = nil
	return nil
}

// Pause stops the process, with its connections, until Start.
func (p *Process) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	// The signal is there before the last thread has stopped: until then it may still answer.
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err != syscall.EINTR {
			return err
		}
	}
}

// PID is the number of the process, 0 if there is none.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

func (p *Process) signal(s syscall.Signal) error {
	if p.cmd == nil {
		return fmt.Errorf("signal %s: it does not run", p.settings.Kind)
	}
	return p.cmd.Process.Signal(s)
}

// freePorts returns ports of loopback that nobody listens on.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // at the end, so that they differ
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// each does something to every process, all at once.
func each(processes []*Process, do func(p *Process) error) error {
	errs := make([]error, len(processes))
	var wg sync.WaitGroup
	for i, p := range processes {
		wg.Go(func() { errs[i] = do(p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
