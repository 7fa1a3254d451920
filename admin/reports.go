package admin

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/presence"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// What processes have reported, see bus.RegistryConfig.HeartbeatInterval. Instants are in UTC, on
// the database's clock.

// Process is a Run of a processor, a scheduler, projections or relays, of any program that works on
// these tables.
type Process struct {
	ID      string `json:"id"`   // of a processor the Owner of its claims
	Kind    string `json:"kind"` // processor, scheduler, projections, relays or operations
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
	Version string `json:"version,omitempty"` // of the program's module, or the revision it was built from

	Status    ProcessStatus `json:"status"`
	StartedAt time.Time     `json:"started_at,omitzero"`
	SeenAt    time.Time     `json:"seen_at,omitzero"`    // when it last told of itself
	StoppedAt time.Time     `json:"stopped_at,omitzero"` // zero unless it has stopped in order

	Consumers   []ProcessConsumer `json:"consumers,omitempty"`   // of a processor
	Schedules   []string          `json:"schedules,omitempty"`   // payload types whose schedules it fires
	Projections []string          `json:"projections,omitempty"` // names with versions
	Relays      []string          `json:"relays,omitempty"`      // names
	Connections int               `json:"connections,omitempty"` // of its pool that it may hold at once; 0 where that is not known

	Running      int      `json:"running"`                 // consumers that ran when it was last seen
	Queued       int      `json:"queued"`                  // messages that it had claimed, and that waited for a worker
	Limit        int      `json:"limit"`                   // the most that may run at once
	Stuck        []string `json:"stuck,omitempty"`         // consumers that ignored their timeout
	OpenCircuits []string `json:"open_circuits,omitempty"` // consumers that a circuit or circuit breaker stopped there
}

// ProcessConsumer is what a process takes of a consumer.
type ProcessConsumer struct {
	Name         string        `json:"name"`
	Former       []string      `json:"former,omitempty"` // names under which its messages may be stored, too
	PayloadTypes []string      `json:"payload_types"`
	Timeout      time.Duration `json:"-"`
	MaxAttempts  int           `json:"max_attempts"`
}

// takes reports whether messages that are stored like that are this consumer's.
func (c ProcessConsumer) takes(consumer, payloadType string) bool {
	return (c.Name == consumer || slices.Contains(c.Former, consumer)) && slices.Contains(c.PayloadTypes, payloadType)
}

// ProcessStatus says whether a process is there.
type ProcessStatus string

// The statuses of a process.
const (
	// ProcessAlive: it was seen lately, within three of its reports or 45 s.
	ProcessAlive ProcessStatus = "alive"
	// ProcessStopped: it has stopped in order.
	ProcessStopped ProcessStatus = "stopped"
	// ProcessLost: it was not seen lately, and has not said that it stops.
	ProcessLost ProcessStatus = "lost"
)

// leastAlive is for how long a process that is not heard of counts as alive, at least.
const leastAlive = 45 * time.Second

func newProcess(row store.Process) Process {
	p := Process{ID: row.ID, Kind: row.Kind, Host: row.Host, PID: row.PID, Program: row.Program, Version: row.Version,
		Status: ProcessAlive, StartedAt: row.StartedAt.Time, SeenAt: row.SeenAt.Time, StoppedAt: row.StoppedAt.Time}
	var m presence.Manifest
	var s presence.State
	_, _ = json.Unmarshal(row.Manifest, &m), json.Unmarshal(row.State, &s) // what another version has written may lack something
	p.Schedules, p.Projections, p.Relays, p.Connections = m.Schedules, m.Projections, m.Relays, m.Connections
	for _, c := range m.Consumers {
		p.Consumers = append(p.Consumers, ProcessConsumer{Name: c.Name, Former: c.Former, PayloadTypes: c.PayloadTypes, Timeout: c.Timeout, MaxAttempts: c.MaxAttempts})
	}
	p.Running, p.Queued, p.Limit, p.Stuck, p.OpenCircuits = s.Running, s.Queued, s.Limit, s.Stuck, s.OpenCircuits
	switch {
	case !p.StoppedAt.IsZero():
		p.Status = ProcessStopped
	case row.Now.Sub(p.SeenAt) > max(leastAlive, 3*s.Every):
		p.Status = ProcessLost
	}
	return p
}

// Processes lists the processes that were seen within a time, those first that were seen last, and 1000 at
// most. They are kept for 7 days.
func (a *Client) Processes(ctx context.Context, db bun.IDB, within time.Duration) ([]Process, error) {
	st, db, err := a.stores.Of(db, errNotMade)
	if err != nil {
		return nil, dberr.Wrap(err, "admin: processes")
	}
	rows, err := st.Processes(ctx, db, within, mostListed)
	if err != nil {
		return nil, dberr.Wrap(err, "admin: processes")
	}
	return store.Each(rows, newProcess), nil
}

// Histogram counts runs by how long something of them took: up to 1, 2, 5, 10, 25, 50, 100, 250 and
// 500 ms, 1 and 10 s, and longer.
type Histogram [store.Buckets]int64

// Quantile is how long at most the given part of the runs took: 0.99 for all but one in a hundred.
// What took more than 10 s counts as an hour, the longest that a timeout may be. Without runs it is
// 0.
func (h Histogram) Quantile(part float64) time.Duration {
	var all, sum int64
	for _, n := range h {
		all += n
	}
	if all == 0 {
		return 0
	}
	for i, bound := range store.Bounds() {
		if sum += h[i]; float64(sum) >= part*float64(all) {
			return bound
		}
	}
	return time.Hour
}

// MinuteStats is what has become of a consumer's messages in one minute, in all processes together.
type MinuteStats struct {
	Consumer  string    `json:"consumer"`
	At        time.Time `json:"at"` // its beginning
	Done      int64     `json:"done"`
	Retried   int64     `json:"retried"`
	Poisoned  int64     `json:"poisoned"`
	Snoozed   int64     `json:"snoozed"`
	Discarded int64     `json:"discarded"`
	Run       Histogram `json:"run"` // how long the runs took
	Lag       Histogram `json:"lag"` // how long after their messages were due they began
}

// Minutes lists the last minutes of consumers, of all unless some are named, by consumer and time.
// A consumer is not listed for a minute in which it has not run. A run counts in the minute in
// which its process reported it, which may be the next. They are kept for 48 hours.
func (a *Client) Minutes(ctx context.Context, db bun.IDB, within time.Duration, consumers ...string) ([]MinuteStats, error) {
	st, db, err := a.stores.Of(db, errNotMade)
	if err != nil {
		return nil, dberr.Wrap(err, "admin: minutes")
	}
	rows, err := st.Minutes(ctx, db, within, consumers)
	if err != nil {
		return nil, dberr.Wrap(err, "admin: minutes")
	}
	return store.Each(rows, func(row store.Minute) MinuteStats {
		return MinuteStats{Consumer: row.ConsumerType, At: row.At.Time, Done: row.Done, Retried: row.Retried, Poisoned: row.Poisoned, Snoozed: row.Snoozed,
			Discarded: row.Discarded, Run: row.Run, Lag: row.Lag}
	}), nil
}

// FailureGroup is what failed runs of a consumer have in common that belong together: their kind, and their
// text but for what differs from run to run.
type FailureGroup struct {
	Consumer    string    `json:"consumer"`
	Fingerprint string    `json:"fingerprint"` // poisoned messages have it, too
	ErrorType   string    `json:"error_type"`
	Sample      string    `json:"sample"` // the text of the last one, up to 2 KiB
	Runs        int64     `json:"runs"`
	FirstAt     time.Time `json:"first_at"`
	LastAt      time.Time `json:"last_at"`
	// FirstVersion is that of the program which met it first.
	FirstVersion string `json:"first_version,omitempty"`
	LastID       int64  `json:"last_id"` // of the last message
}

// Failures lists kinds of failures, those first that came last: of a consumer, or of all if that is
// empty. They are forgotten 30 days after the last one. The limit is 1 to 1000.
func (a *Client) Failures(ctx context.Context, db bun.IDB, consumer string, limit int) ([]FailureGroup, error) {
	st, db, err := a.stores.Of(db, errNotMade)
	if err == nil {
		err = checkLimit(limit)
	}
	if err != nil {
		return nil, dberr.Wrap(err, "admin: failures")
	}
	rows, err := st.Failures(ctx, db, consumer, limit)
	if err != nil {
		return nil, dberr.Wrap(err, "admin: failures")
	}
	return store.Each(rows, func(row store.FailureGroup) FailureGroup {
		return FailureGroup{Consumer: row.ConsumerType, Fingerprint: row.Fingerprint, ErrorType: row.ErrorType, Sample: row.Sample, Runs: row.Runs,
			FirstAt: row.FirstAt.Time, LastAt: row.LastAt.Time, FirstVersion: row.FirstVersion, LastID: row.RowID}
	}), nil
}

// Crash is the loss of a process while it held a message.
type Crash struct {
	ID       int64  `json:"id"` // of the message
	Consumer string `json:"consumer"`
	Owner    string `json:"owner"` // the ID of its Process
	// Solo is true when it was the only suspect that ran there, which convicts it.
	Isolated bool      `json:"isolated"`
	At       time.Time `json:"at"` // when that was found out
}

// Crashes lists the processes that were lost with a message, or with any if its id is 0, the last
// first. They are kept for 7 days. The limit is 1 to 1000.
func (a *Client) Crashes(ctx context.Context, db bun.IDB, id int64, limit int) ([]Crash, error) {
	st, db, err := a.stores.Of(db, errNotMade)
	if err == nil {
		err = checkLimit(limit)
	}
	if err != nil {
		return nil, dberr.Wrap(err, "admin: crashes of %d", id)
	}
	rows, err := st.Crashes(ctx, db, id, limit)
	if err != nil {
		return nil, dberr.Wrap(err, "admin: crashes of %d", id)
	}
	return store.Each(rows, func(row store.Crash) Crash {
		return Crash{ID: row.RowID, Consumer: row.ConsumerType, Owner: row.Owner, Isolated: row.Solo, At: row.CrashedAt.Time}
	}), nil
}
