package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// A log forwarder stores the event types that it publishes. While two releases run, a process that
// lacks a type must not skip its events, or no process would publish them.

// errNewer is returned for an event that only a newer process can publish.
var errNewer = errors.New("only a newer process can publish it")

// enter creates the forwarder's checkpoints, unless they exist.
func (l *logForwarder) enter(ctx context.Context, s *services) error {
	sub := store.Subscription{Name: l.checkpoint(), Version: logVersion, Shards: l.logConfig.Shards, Filter: "{}"}
	rows, err := s.store.Readers.List(ctx, s.db, sub.Name)
	if err == nil && len(rows) == 0 {
		err = txn.InTx(ctx, s.db, func(tx bun.Tx) error { return s.store.Readers.Subscribe(ctx, tx, sub) })
		if err == nil {
			rows, err = s.store.Readers.List(ctx, s.db, sub.Name)
		}
	}
	if err != nil {
		return fmt.Errorf("log forwarder %q: %w", l.name, err)
	}
	if n := len(rows); n != l.logConfig.Shards {
		return fmt.Errorf(
			"log forwarder %q: Shards %d: the forwarder already has %d shards: keep %d, or publish the whole log again with a new name "+
				"(an Appender then needs a new place, such as a new nats.AppenderConfig.Prefix)",
			l.name, l.logConfig.Shards, n, n,
		)
	}
	return l.announce(ctx, s)
}

// try asks the broker for the shards' positions. It ignores an unavailable broker.
func (l *logForwarder) try(ctx context.Context) error {
	if l.appender == nil {
		return nil
	}
	for _, s := range l.shards {
		_, err := s.last(ctx, min(l.config.PublishTimeout, statementTimeout))
		if errors.Is(err, broker.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("log forwarder %q: shard %d: %w", l.name, s.number, err)
		}
	}
	return nil
}

// typesOf decodes the stored types. Older releases stored none.
func typesOf(filter string) (types []string) {
	if json.Unmarshal([]byte(filter), &types) != nil {
		return nil
	}
	return types
}

// union returns the types of both, sorted.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// announce adds this process's types to the stored ones. From then on, a process that lacks them
// does not move past their events.
func (l *logForwarder) announce(ctx context.Context, s *services) error {
	return l.setTypes(ctx, s, func(stored []string) []string { return union(stored, l.stored) })
}

func (l *logForwarder) setTypes(ctx context.Context, s *services, change func(stored []string) []string) error {
	for range 10 { // other processes may change them concurrently
		rows, err := s.store.Readers.List(ctx, s.db, l.checkpoint())
		if err != nil {
			return fmt.Errorf("log forwarder %q: read its types: %w", l.name, err)
		}
		same, changed := true, make(map[string]bool) // shards with the same types are changed together
		for _, row := range rows {
			after, err := json.Marshal(union(nil, change(typesOf(row.Filter))))
			if err != nil {
				return fmt.Errorf("log forwarder %q: encode its types: %w", l.name, err)
			}
			if row.Filter == string(after) || changed[row.Filter] {
				continue
			}
			same, changed[row.Filter] = false, true
			if _, err := s.store.Readers.SetFilter(ctx, s.db, l.checkpoint(), logVersion, row.Filter, string(after)); err != nil {
				return fmt.Errorf("log forwarder %q: store its types: %w", l.name, err)
			}
		}
		if same {
			return nil
		}
	}
	return fmt.Errorf("log forwarder %q: other processes keep changing its types", l.name)
}
