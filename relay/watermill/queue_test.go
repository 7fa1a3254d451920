package watermill_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// queue is a fake of a broker, with a publisher and a subscriber as Watermill has them: one message at
// a time, each until it is acknowledged.
type queue struct {
	mu      sync.Mutex
	waiting []*message.Message
	away    bool
	hangs   bool
	change  chan struct{} // closed when anything above changes
	running sync.WaitGroup
}

const (
	topic   = "here"
	tooMuch = 1 << 20
)

var (
	errNoTopic = errors.New("no such topic")
	errTooMuch = errors.New("too much")
)

func newQueue() *queue { return &queue{change: make(chan struct{})} }

func (q *queue) become(f func()) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	close(q.change)
	q.change = make(chan struct{})
	return nil
}

func (q *queue) now() (first *message.Message, away, hangs bool, change chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		first = q.waiting[0]
	}
	return first, q.away, q.hangs, q.change
}

// Publish minds no deadline, as most of Watermill's publishers.
func (q *queue) Publish(to string, messages ...*message.Message) error {
	for {
		_, away, hangs, change := q.now()
		if !away {
			break
		}
		if !hangs {
			return io.EOF
		}
		<-change
	}
	for _, m := range messages {
		size := len(m.Payload)
		for key, value := range m.Metadata {
			size += len(key) + len(value)
		}
		switch {
		case to != topic:
			return errNoTopic
		case size >= tooMuch:
			return errTooMuch
		}
		_ = q.become(func() { q.waiting = append(q.waiting, m.Copy()) })
	}
	return nil
}

func (q *queue) Subscribe(ctx context.Context, from string) (<-chan *message.Message, error) {
	if from != topic {
		return nil, errNoTopic
	}
	output := make(chan *message.Message)
	q.running.Go(func() {
		defer close(output)
		for ctx.Err() == nil {
			first, away, _, change := q.now()
			if first == nil || away {
				select {
				case <-change:
				case <-ctx.Done():
				}
				continue
			}
			q.deliver(ctx, first, output)
		}
	})
	return output, nil
}

// deliver brings a message, and removes it once it is acknowledged.
func (q *queue) deliver(ctx context.Context, m *message.Message, output chan<- *message.Message) {
	copied := message.NewMessage(m.UUID, slices.Clone(m.Payload))
	copied.Metadata = maps.Clone(m.Metadata)
	select {
	case output <- copied:
	case <-ctx.Done():
		return
	}
	select {
	case <-copied.Acked():
		_ = q.become(func() { q.waiting = q.waiting[1:] })
	case <-copied.Nacked():
	case <-ctx.Done():
	}
}

func (q *queue) Close() error {
	q.running.Wait()
	return nil
}
