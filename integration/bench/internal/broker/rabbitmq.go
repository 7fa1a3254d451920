package broker

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/cpu"
)

// Names of environment variables with the URLs of RabbitMQ's nodes, and with their directories,
// with spaces between.
const (
	RabbitVariable = "ASYNCMONOLITH_TEST_RABBITMQ"
	nodesVariable  = "ASYNCMONOLITH_TEST_RABBITMQ_NODES"
)

// RabbitMQ is a cluster.
type RabbitMQ struct {
	urls  []string
	dirs  []string
	input io.Closer // the script ends with it; nil if this program has not started it
	wait  func() error
}

// StartRabbitMQ starts three nodes with scripts/with-rabbitmq.sh, unless the environment names
// some. Where that does not work it returns a [MissingError].
func StartRabbitMQ(ctx context.Context) (*RabbitMQ, error) {
	if urls := strings.Fields(os.Getenv(RabbitVariable)); len(urls) > 0 {
		return &RabbitMQ{urls: urls, dirs: strings.Fields(os.Getenv(nodesVariable))}, nil
	}
	_, file, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(file), "../../../../scripts/with-rabbitmq.sh")
	command := exec.CommandContext(ctx, script, "3", "sh", "-c", `echo "$`+RabbitVariable+`;$`+nodesVariable+`"; exec cat`)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // it has to tidy up
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, &MissingError{Broker: "RabbitMQ", Err: err}
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, &MissingError{Broker: "RabbitMQ", Err: fmt.Errorf("scripts/with-rabbitmq.sh 3: %w", errors.Join(err, command.Wait()))}
	}
	urls, dirs, _ := strings.Cut(line, ";")
	return &RabbitMQ{urls: strings.Fields(urls), dirs: strings.Fields(dirs), input: input, wait: command.Wait}, nil
}

// Close ends the nodes, if this program has started them.
func (r *RabbitMQ) Close() error {
	if r.input == nil {
		return nil
	}
	return errors.Join(r.input.Close(), r.wait())
}

// Nodes is how many there are.
func (r *RabbitMQ) Nodes() int { return len(r.urls) }

// CPU returns the processor time that the nodes have used, 0 when that is not known.
func (r *RabbitMQ) CPU() (total time.Duration) {
	for _, dir := range r.dirs {
		text, _ := os.ReadFile(filepath.Join(dir, "pid")) // of a group
		if leader, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			total += cpu.Group(leader)
		}
	}
	return total
}

// Place makes a quorum queue.
func (r *RabbitMQ) Place(ctx context.Context) (Place, error) {
	q := &queue{url: r.urls[0], name: rand.Text()}
	err := eventually(ctx, func(context.Context) error {
		return q.do(func(channel *amqp.Channel) error {
			_, err := channel.QueueDeclare(q.name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
			return err
		})
	})
	if err != nil {
		return Place{}, fmt.Errorf("make a queue: %w", err)
	}
	return Place{Address{URLs: r.urls, Name: q.name, Destination: q.name}, q}, nil
}

// queue is the place.
type queue struct {
	url, name string
	conn      *amqp.Connection // nil until it is used
}

// do does something on a channel of its own.
func (q *queue) do(use func(channel *amqp.Channel) error) (err error) {
	if q.conn == nil || q.conn.IsClosed() {
		if q.conn, err = amqp.Dial(q.url); err != nil {
			return err
		}
	}
	channel, err := q.conn.Channel()
	if err != nil {
		return err
	}
	defer channel.Close() //nolint:errcheck // it has done what it was for
	return use(channel)
}

// Count implements place.
func (q *queue) Count(context.Context) (n int, err error) {
	err = q.do(func(channel *amqp.Channel) error {
		found, err := channel.QueueDeclarePassive(q.name, true, false, false, false, nil)
		n = found.Messages
		return err
	})
	return n, err
}

// Read implements place: it removes what it reads, until nothing more comes.
func (q *queue) Read(ctx context.Context, fn func(Record) error) error {
	return q.do(func(channel *amqp.Channel) error {
		if err := channel.Qos(1000, 0, false); err != nil {
			return err
		}
		deliveries, err := channel.ConsumeWithContext(ctx, q.name, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		for {
			select {
			case d, open := <-deliveries:
				if !open {
					return errors.Join(errors.New("the channel is closed"), context.Cause(ctx))
				}
				if err := errors.Join(fn(Record{Body: d.Body}), d.Ack(false)); err != nil {
					return err
				}
			case <-time.After(request / 2):
				return nil
			}
		}
	})
}

// Drop implements place.
func (q *queue) Drop(context.Context) error {
	err := q.do(func(channel *amqp.Channel) error {
		_, err := channel.QueueDelete(q.name, false, false, false)
		return err
	})
	if q.conn != nil {
		err = errors.Join(err, q.conn.Close())
	}
	return err
}
