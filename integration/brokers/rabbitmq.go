//go:build unix

package brokers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Variables that scripts/with-rabbitmq.sh sets.
const (
	rabbitVariable = "ASYNCMONOLITH_TEST_RABBITMQ"
	nodesVariable  = "ASYNCMONOLITH_TEST_RABBITMQ_NODES"
)

// RabbitMQ is what scripts/with-rabbitmq.sh has started: a node, or a cluster.
type RabbitMQ struct {
	URLs []string
	dirs []string
}

// FindRabbitMQ returns it. A test without it fails.
func FindRabbitMQ(t testing.TB) *RabbitMQ {
	t.Helper()
	r := &RabbitMQ{URLs: strings.Fields(os.Getenv(rabbitVariable)), dirs: strings.Fields(os.Getenv(nodesVariable))}
	if len(r.URLs) == 0 || len(r.URLs) != len(r.dirs) {
		t.Fatalf("%s and %s do not name RabbitMQ: run this with scripts/with-rabbitmq.sh", rabbitVariable, nodesVariable)
	}
	t.Cleanup(func() {
		if err := r.Start(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// Start starts the nodes that do not run, and lets paused ones go on.
func (r *RabbitMQ) Start() error { return r.all("start") }

// Kill ends all nodes at once.
func (r *RabbitMQ) Kill() error { return r.all("kill") }

// Pause stops all nodes until Start.
func (r *RabbitMQ) Pause() error { return r.all("pause") }

// KillNode ends a node, and PauseNode stops it, until Start.
func (r *RabbitMQ) KillNode(i int) error { return r.node(i, "kill") }

// PauseNode is like KillNode, but that the node's connections stay.
func (r *RabbitMQ) PauseNode(i int) error { return r.node(i, "pause") }

// Leader is the node that leads a quorum queue. All nodes must run.
func (r *RabbitMQ) Leader(queue string) (int, error) {
	output, err := r.tell(0, "leader", queue)
	if err != nil {
		return 0, err
	}
	for i, dir := range r.dirs {
		env, err := os.ReadFile(filepath.Join(dir, "env"))
		if err != nil {
			return 0, fmt.Errorf("RabbitMQ's node %d: %w", i+1, err)
		}
		if output != "" && strings.Contains(string(env), "RABBITMQ_NODENAME="+output+"\n") {
			return i, nil
		}
	}
	return 0, fmt.Errorf("queue %s is led by %q, which is no node", queue, output)
}

// Online is on how many nodes a quorum queue runs. The first node must run.
func (r *RabbitMQ) Online(queue string) (int, error) {
	output, err := r.tell(0, "online", queue)
	if err != nil || output == "" {
		return 0, err
	}
	return strconv.Atoi(output)
}

// Cut closes the connections of all clients.
func (r *RabbitMQ) Cut() error { return r.node(0, "cut") }

// Block has the broker take nothing from publishers, as if it had no memory left, until Unblock.
func (r *RabbitMQ) Block() error { return r.all("block") }

// Unblock ends what Block began.
func (r *RabbitMQ) Unblock() error { return r.all("unblock") }

// Channels is how many channels clients have open on all nodes. The first node must run.
func (r *RabbitMQ) Channels() (int, error) {
	output, err := r.tell(0, "channels")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(output)
}

// Permit lets clients publish to an exchange by routing keys that match, and no others.
func (r *RabbitMQ) Permit(exchange, keys string) error {
	_, err := r.tell(0, "permit", exchange, keys)
	return err
}

// Restart kills one node and starts it again.
func (r *RabbitMQ) Restart(i int) error {
	if err := r.node(i%len(r.dirs), "kill"); err != nil {
		return err
	}
	return r.node(i%len(r.dirs), "start")
}

func (r *RabbitMQ) all(command string) error {
	errs := make([]error, len(r.dirs))
	var wg sync.WaitGroup
	for i := range r.dirs {
		wg.Go(func() { errs[i] = r.node(i, command) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *RabbitMQ) node(i int, command string) error {
	_, err := r.tell(i, command)
	return err
}

// tell has a node do something, and returns what it says.
func (r *RabbitMQ) tell(i int, command ...string) (string, error) {
	_, file, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(file), "../../scripts/lib/rabbitmq-node.sh")
	output, err := exec.Command(script, append([]string{r.dirs[i]}, command...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s RabbitMQ's node %d: %w: %s", command[0], i+1, err, output)
	}
	return strings.TrimSpace(string(output)), nil
}
