package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// shelf is a broker in memory that appends on a condition, as JetStream does: all or none, after
// the record with a revision, which counts over all shards.
type shelf struct {
	mu       sync.Mutex
	revision uint64
	shards   map[int][]broker.Record
	newest   map[int]uint64
	stale    int // appends that were refused
	// removed is the revision up to which records were removed since they were old.
	removed uint64
	calls   int

	// before and after are called around an append. An error of before refuses it; one of after
	// has the caller not hear that it was done.
	before, after func(shard int, records []broker.Record) error
}

func newShelf() *shelf {
	return &shelf{shards: make(map[int][]broker.Record), newest: make(map[int]uint64)}
}

// empty removes all records: since they are old, or because the broker has lost them, and everything else that it knew.
func (s *shelf) empty(lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.shards)
	clear(s.newest)
	if s.removed = s.revision; lost {
		s.removed, s.revision = 0, 0
	}
}

// Publish implements broker.Publisher.
func (s *shelf) Publish(context.Context, []broker.Record) []error {
	return []error{errors.New("an appender is to append")}
}

// Last implements broker.Appender.
func (s *shelf) Last(_ context.Context, shard int) (id string, position int64, revision uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest[shard] == 0 {
		return "", 0, s.removed, nil
	}
	all := s.shards[shard]
	last := all[len(all)-1]
	position, err = strconv.ParseInt(last.Attributes["sequence"], 10, 64)
	return last.ID, position, s.newest[shard], err
}

// Append implements broker.Appender.
func (s *shelf) Append(_ context.Context, shard int, after uint64, records []broker.Record) (uint64, error) {
	if s.before != nil {
		if err := s.before(shard, records); err != nil {
			return 0, err
		}
	}
	revision, err := s.append(shard, after, records)
	if err == nil && s.after != nil {
		err = s.after(shard, records)
	}
	return revision, err
}

func (s *shelf) append(shard int, after uint64, records []broker.Record) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.newest[shard] != after {
		s.stale++
		return 0, fmt.Errorf("the newest is %d, not %d: %w", s.newest[shard], after, broker.ErrSequenceConflict)
	}
	for _, record := range records {
		s.revision++
		s.shards[shard] = append(s.shards[shard], clone(record))
	}
	s.newest[shard] = s.revision
	return s.revision, nil
}

// all returns the records of all shards, one shard after the other.
func (s *shelf) all() (all []broker.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for shard := range 64 {
		all = append(all, s.shards[shard]...)
	}
	return all
}

func (s *shelf) refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stale
}

// disorder tells what is wrong with records that should have the log's events, each once, and in
// the order of their streams; within a shard, of their positions. It is empty if nothing is.
func disorder(shards map[int][]broker.Record, events int) string {
	last := make(map[string]int64)
	seen := make(map[string]bool)
	for shard, records := range shards {
		before := int64(0)
		for _, r := range records {
			position, err := strconv.ParseInt(r.Attributes["sequence"], 10, 64)
			switch id := r.Attributes["id"]; {
			case err != nil:
				return err.Error()
			case seen[id]:
				return fmt.Sprintf("position %d is there twice", position)
			case position <= before:
				return fmt.Sprintf("shard %d: position %d comes after %d", shard, position, before)
			case position <= last[r.Key]:
				return fmt.Sprintf("stream %s: position %d comes after %d", r.Key, position, last[r.Key])
			default:
				seen[id], before, last[r.Key] = true, position, position
			}
		}
	}
	if len(seen) != events {
		return fmt.Sprintf("%d of %d events are there", len(seen), events)
	}
	return ""
}

func (s *shelf) disorder(events int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	shards := make(map[int][]broker.Record)
	for shard, records := range s.shards {
		shards[shard] = slices.Clone(records)
	}
	return disorder(shards, events)
}
