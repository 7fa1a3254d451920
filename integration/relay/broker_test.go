package relay_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// broker is one in memory: what is published is kept, and each subscription has a cursor.
type memory struct {
	mu      sync.Mutex
	records []broker.Record
	changed chan struct{} // closed, and replaced, when there is more

	// fate says what becomes of a record that is published. Nil stands for the best.
	fate  atomic.Pointer[func(broker.Record) error]
	calls atomic.Int64
}

func newBroker() *memory { return &memory{changed: make(chan struct{})} }

func (b *memory) failWith(fate func(broker.Record) error) {
	if fate == nil {
		b.fate.Store(nil)
		return
	}
	b.fate.Store(&fate)
}

// Publish implements broker.Publisher.
func (b *memory) Publish(ctx context.Context, records []broker.Record) []error {
	b.calls.Add(1)
	errs := make([]error, len(records))
	fate := b.fate.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, record := range records {
		if fate != nil {
			errs[i] = (*fate)(record)
		}
		if errs[i] == nil {
			b.records = append(b.records, clone(record))
		}
	}
	close(b.changed)
	b.changed = make(chan struct{})
	return errs
}

func clone(r broker.Record) broker.Record {
	r.Attributes, r.Headers, r.Body = maps.Clone(r.Attributes), maps.Clone(r.Headers), slices.Clone(r.Body)
	return r
}

// put publishes without asking for a fate.
func (b *memory) put(records ...broker.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, record := range records {
		b.records = append(b.records, clone(record))
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *memory) all() []broker.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.records)
}

// after returns records from a place on, at most n, and what tells of more.
func (b *memory) after(place, n int) ([]broker.Record, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch []broker.Record
	for _, record := range b.records[place:min(len(b.records), place+n)] {
		batch = append(batch, clone(record))
	}
	return batch, b.changed
}

// subscription delivers all that a broker has, and again what was given back.
type subscription struct {
	broker *memory
	batch  int
	// again is how often each batch is delivered once more although it was acknowledged.
	again  int
	place  atomic.Int64
	given  atomic.Int64 // batches that came back
	acked  atomic.Int64 // records
	active atomic.Bool
	// between is called between the function's return and the acknowledgement, and may lose that.
	between func() error
	fails   atomic.Pointer[error]
}

func (b *memory) subscribe() *subscription { return &subscription{broker: b, batch: 100} }

// Subscribe implements broker.Subscriber.
func (s *subscription) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	if err := s.fails.Load(); err != nil {
		return *err
	}
	s.active.Store(true)
	defer s.active.Store(false)
	repeated, size := 0, s.batch
	for ctx.Err() == nil {
		records, more := s.broker.after(int(s.place.Load()), size)
		if len(records) == 0 {
			select {
			case <-ctx.Done():
			case <-more:
			}
			continue
		}
		err := fn(ctx, records)
		if err == nil && s.between != nil {
			err = s.between()
		}
		switch {
		case err != nil:
			s.given.Add(1)
		case repeated < s.again:
			repeated, size = repeated+1, len(records) // no more than before
		default:
			repeated, size = 0, s.batch
			s.acked.Add(int64(len(records)))
			s.place.Add(int64(len(records)))
		}
	}
	return nil
}

var errLost = errors.New("the acknowledgement is lost")
