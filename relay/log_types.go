package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// A log relay stores the event types that it publishes. While two releases run, a process that
// lacks a type must not skip its events, or no process would publish them.

// errLacksType is returned for an event that only another process can publish.
var errLacksType = errors.New("relay: this process has no route for a type of events that the log relay publishes")

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
func (r *Runner) announce(ctx context.Context, l *logging) error {
	return r.setTypes(ctx, l, func(stored []string) []string { return union(stored, l.stored) })
}

// setTypes changes the stored types.
func (r *Runner) setTypes(ctx context.Context, l *logging, change func(stored []string) []string) error {
	for range 10 { // other processes may change them concurrently
		rows, err := r.store.Subscriptions(ctx, r.db, l.checkpoint())
		if err != nil {
			return fmt.Errorf("log relay %q: look which types it has: %w", l.name, err)
		}
		same, changed := true, make(map[string]bool) // shards with the same types are changed together
		for _, row := range rows {
			after, err := json.Marshal(union(nil, change(typesOf(row.Filter))))
			if err != nil {
				return fmt.Errorf("log relay %q: encode its types: %w", l.name, err)
			}
			if row.Filter == string(after) || changed[row.Filter] {
				continue
			}
			same, changed[row.Filter] = false, true
			if _, err := r.store.SetFilter(ctx, r.db, l.checkpoint(), logVersion, row.Filter, string(after)); err != nil {
				return fmt.Errorf("log relay %q: store its types: %w", l.name, err)
			}
		}
		if same {
			return nil
		}
	}
	return fmt.Errorf("log relay %q: others change its types all the time", l.name)
}

// leave leaves a shard to a process that has the type of its next event.
func (r *Runner) leave(ctx context.Context, s *shard, event store.Event, err error) error {
	s.told = false
	err = fmt.Errorf("%w: event %q at position %d", err, event.Type, event.Position)
	if s.failures++; s.failures == 1 {
		r.config.Logger.Warn("log relay leaves a shard to other processes", "relay", s.name, "shard", s.number, "error", errorlog.Text(err))
	}
	s.wait(min(firstRetry<<min(s.failures-1, 5), longestRetry), false)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if err := r.store.LeaveLeased(ctx, r.db, s.sub, r.owner, errorlog.Text(err)); err != nil {
		return fmt.Errorf("leave a shard: %w", err)
	}
	return nil
}
