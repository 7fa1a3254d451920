package txn_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// A process that is started with these runs a world and, in a transaction, stands still at the place that it is given, and tells
// which of the server's processes that is. Without one it tells all places instead, on its standard output, a line for each.
const (
	frozenDSN = "ASYNCMONOLITH_TEST_FROZEN_DSN"
	frozenAt  = "ASYNCMONOLITH_TEST_FROZEN_AT"
)

// runFrozen is what such a process does until it is killed.
func runFrozen(dsn, at string) error {
	var mu sync.Mutex
	seen := make(map[string]bool)
	watch := func(a answered) {
		prepares := strings.HasPrefix(a.text, "PREPARE") || strings.Contains(a.text, "pg_prepared_statements")
		if a.tx == "" && !prepares || a.tx == withoutValues(applicationsOwn) || a.err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		switch place := a.place(); {
		case at == "" && !seen[place]:
			seen[place] = true
			fmt.Println(place)
		case at == place:
			fmt.Println(a.pid)
			if err := stopMyself(); err != nil {
				panic(err)
			}
			select {} // the other threads may stop a little later, this transaction stands still
		}
	}
	db, err := openWatched(dsn, worldConns, watch)
	if err != nil {
		return err
	}
	defer db.Close()
	w, err := newWorld(db, func(string) {}, func(error) {})
	if err != nil {
		return err
	}
	return w.run(context.Background(), context.Background())
}

// frozenProcess is such a process.
type frozenProcess struct {
	said chan string // closed when it is gone
	kill func()      // and waits for it
}

// startFrozen starts one.
func startFrozen(t *testing.T, dsn, at string) *frozenProcess {
	t.Helper()
	p, command := &frozenProcess{said: make(chan string, 1000)}, exec.Command(os.Args[0])
	command.Env = append(os.Environ(), frozenDSN+"="+dsn, frozenAt+"="+at)
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatalf("start a process: %v", err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.said <- lines.Text()
		}
	}()
	p.kill = func() {
		_ = command.Process.Kill()
		<-read
		_ = command.Wait() // it was killed
	}
	return p
}

// next is the next line that it says, unless that takes too long.
func (p *frozenProcess) next(t *testing.T, patience time.Duration) (line string, ok bool) {
	t.Helper()
	select {
	case line, ok = <-p.said:
		if !ok {
			t.Fatal("the process has ended by itself")
		}
		return line, true
	case <-time.After(patience):
		return "", false
	}
}
