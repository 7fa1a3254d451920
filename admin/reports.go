package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// This file reads what processes report: see bus.RegistryConfig.HeartbeatInterval.

// Process is one Run of a processor, a scheduler, projections, relays, receivers or operations, in
// any program that uses these tables. Times are in UTC, on the database's clock.
type Process struct {
	ID      string `json:"id"`   // for a processor, the Owner of its claims
	Kind    string `json:"kind"` // processor, scheduler, projections, relays, receivers or operations
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
	Version string `json:"version,omitempty"` // see bus.RegistryConfig.AppVersion
	// Instance is a random id of the operating system's process, which its Runs share. Host and PID do
	// not identify it: containers may have the same. It is empty for programs of older versions.
	Instance string `json:"instance,omitempty"`

	Status    ProcessStatus `json:"status"`
	StartedAt time.Time     `json:"started_at,omitzero"`
	SeenAt    time.Time     `json:"seen_at,omitzero"`    // time of its last report
	StoppedAt time.Time     `json:"stopped_at,omitzero"` // zero unless it has stopped gracefully

	Consumers   []ProcessConsumer `json:"consumers,omitempty"`   // processors only
	Schedules   []string          `json:"schedules,omitempty"`   // payload types whose schedules it fires
	Projections []string          `json:"projections,omitempty"` // names with versions
	Relays      []string          `json:"relays,omitempty"`      // names
	Connections int               `json:"connections,omitempty"` // maximum connections of its pool; 0 if not known
	Operation   int64             `json:"operation,omitempty"`   // the only operation that it runs; 0: any

	Running int      `json:"running"`         // consumers running at its last report
	Queued  int      `json:"queued"`          // claimed messages waiting for a worker
	Limit   int      `json:"limit"`           // maximum number of consumers running at once
	Stuck   []string `json:"stuck,omitempty"` // consumers that ignored their timeout
	// OpenCircuits are the circuits and circuit breakers that were open there at its last report. The
	// reason is an error text of at most 300 bytes. A program of an older version reports names alone.
	OpenCircuits []bus.OpenCircuit `json:"open_circuits,omitempty"`
}

// ProcessConsumer is a consumer as a process reports it.
type ProcessConsumer struct {
	Name         string        `json:"name"`
	Former       []string      `json:"former,omitempty"` // former names under which messages may be stored
	PayloadTypes []string      `json:"payload_types"`    // current and former names
	Timeout      time.Duration `json:"-"`                // of a run: see bus.Timeout
	MaxAttempts  int           `json:"max_attempts"`     // see bus.MaxAttempts
	// Limit is the maximum number of runs in all processes together: see bus.GlobalConcurrency. 0
	// means no limit. LimitName is the name of a limit that several consumers share: see
	// bus.SharedConcurrency.
	Limit     int    `json:"limit,omitempty"`
	LimitName string `json:"limit_name,omitempty"`
	// Rate messages start within RatePer, in all processes together: see bus.RateLimit. 0 is no
	// limit.
	Rate      int           `json:"rate,omitempty"`
	RatePer   time.Duration `json:"-"`
	RateBurst int           `json:"rate_burst,omitempty"`
}

// ProcessStatus is whether a process is alive, stopped or lost.
type ProcessStatus string

// The statuses of a process.
const (
	// ProcessAlive: it reported within three report intervals, or 45 s if that is longer.
	ProcessAlive ProcessStatus = "alive"
	// ProcessStopped: it has stopped gracefully.
	ProcessStopped ProcessStatus = "stopped"
	// ProcessLost: its reports ended without a stop.
	ProcessLost ProcessStatus = "lost"
)

func newProcess(row store.Process) Process {
	p := Process{ID: row.ID, Kind: row.Kind, Host: row.Host, PID: row.PID, Program: row.Program, Version: row.Version,
		Status: ProcessAlive, StartedAt: row.StartedAt.Time, SeenAt: row.SeenAt.Time, StoppedAt: row.StoppedAt.Time}
	var m heartbeat.Manifest
	var s heartbeat.State
	_, _ = json.Unmarshal(row.Manifest, &m), json.Unmarshal(row.State, &s) // another version may have left out fields
	p.Schedules, p.Projections, p.Relays, p.Connections = m.Schedules, m.Projections, m.Relays, m.Connections
	for _, c := range m.Consumers {
		p.Consumers = append(p.Consumers, ProcessConsumer(c))
	}
	p.Instance, p.Operation = s.Instance, s.Operation
	p.Running, p.Queued, p.Limit, p.Stuck, p.OpenCircuits = s.Running, s.Queued, s.Limit, s.Stuck, s.Open()
	switch {
	case !p.StoppedAt.IsZero():
		p.Status = ProcessStopped
	case heartbeat.Lost(row, s):
		p.Status = ProcessLost
	}
	return p
}

// Processes returns at most 1000 processes that reported within the given time, the last seen
// first. Reports are kept for 7 days.
func (c *Client) Processes(ctx context.Context, db bun.IDB, within time.Duration) ([]Process, error) {
	found, err := store.Listed(c.stores, db, errNotMade, func(st *store.Store, db bun.IDB) ([]store.Process, error) {
		return st.Reports.Processes(ctx, db, within, mostListed)
	}, newProcess)
	return found, dberr.Wrap(err, "admin: processes")
}

// mostListed is the maximum length of lists without pages.
const mostListed = 1000

// FailureGroup groups failed runs of a consumer by error type and error text, without the parts of
// the text that differ from run to run.
type FailureGroup struct {
	Consumer    string    `json:"consumer"`
	Fingerprint string    `json:"fingerprint"` // poisoned messages have the same fingerprint
	ErrorType   string    `json:"error_type"`
	Sample      string    `json:"sample"` // text of the last error, up to 2 KiB
	Runs        int64     `json:"runs"`   // failed runs
	FirstAt     time.Time `json:"first_at"`
	LastAt      time.Time `json:"last_at"`
	// FirstVersion is the version of the program that met the error first.
	FirstVersion string `json:"first_version,omitempty"`
	LastID       int64  `json:"last_id"` // id of the last message
}

// Failures returns the failure groups of a consumer, or of all if it is empty, the most recent
// first. A group is deleted 30 days after its last failure. The limit is 1 to 1000; otherwise the
// error is bus.ErrInvalidOption.
func (c *Client) Failures(ctx context.Context, db bun.IDB, consumer string, limit int) ([]FailureGroup, error) {
	found, err := store.Listed(c.stores, db, errNotMade, func(st *store.Store, db bun.IDB) ([]store.FailureGroup, error) {
		if limit < 1 || limit > mostListed {
			return nil, fmt.Errorf("%w: limit %d: 1 to %d is allowed", bus.ErrInvalidOption, limit, mostListed)
		}
		return st.Reports.Failures(ctx, db, consumer, limit)
	}, newFailureGroup)
	return found, dberr.Wrap(err, "admin: failures")
}

func newFailureGroup(f store.FailureGroup) FailureGroup {
	return FailureGroup{
		Consumer: f.ConsumerType, Fingerprint: f.Fingerprint, ErrorType: f.ErrorType, Sample: f.Sample, Runs: f.Runs,
		FirstAt: f.FirstAt.Time, LastAt: f.LastAt.Time, FirstVersion: f.FirstVersion, LastID: f.RowID,
	}
}
