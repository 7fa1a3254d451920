package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"

	"github.com/asyncmonolith/asyncmonolith-go/examples/services/service"
)

// process is a service that runs.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	told   atomic.Bool // to end
	killed atomic.Bool
	ended  chan struct{}
	err    error // once it has ended
}

// startProcess starts this program as a service. hear gets what it tells, and ended is called if it
// ends without having been told to.
func startProcess(s service.Settings, hear func(service.Event), ended func(error)) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(program), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), s.Env()...)
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process
		defer close(p.ended)
		lines := json.NewDecoder(stdout)
		for {
			var e service.Event
			if lines.Decode(&e) != nil { // the end, or half a line of a killed process
				break
			}
			hear(e)
		}
		_, _ = io.Copy(io.Discard, stdout)
		if p.err = p.cmd.Wait(); !p.told.Load() {
			ended(fmt.Errorf("service %s has ended by itself: %v", s.Name, p.err))
		}
	}()
	return p, nil
}

// stop tells the service to end, and waits.
func (p *process) stop() error {
	p.told.Store(true)
	_ = p.stdin.Close() // it may have ended
	<-p.ended
	if p.killed.Load() {
		return nil
	}
	return p.err
}

// kill ends the service with SIGKILL, and waits.
func (p *process) kill() error {
	p.told.Store(true)
	p.killed.Store(true)
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}
