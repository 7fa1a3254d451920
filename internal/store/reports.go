package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Process is a run that works on the tables, as it reports itself.
type Process struct {
	ID        string         `bun:"id"` // for a processor, the owner of its claims
	Kind      string         `bun:"kind"`
	Host      string         `bun:"host"`
	PID       int            `bun:"pid"`
	Program   string         `bun:"program"`
	Version   string         `bun:"version"`
	StartedAt dialect.Moment `bun:"started_at"`
	SeenAt    dialect.Moment `bun:"seen_at"`
	StoppedAt dialect.Moment `bun:"stopped_at"` // zero unless it has shut down cleanly
	Manifest  []byte         `bun:"manifest"`   // JSON: what it takes
	State     []byte         `bun:"state"`      // JSON: how it is doing
	Contract  []byte         `bun:"-"`          // JSON: its payloads; only [ReportStore.Contracts] reads it
	Now       dialect.Moment `bun:"now"`        // when the row was read
}

// Buckets is how many parts a histogram has.
const Buckets = 12

// Bounds returns the longest duration of each part of a histogram except the last.
func Bounds() [Buckets - 1]time.Duration {
	return [...]time.Duration{
		time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
		100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 10 * time.Second,
	}
}

// Tally counts runs by outcome, by duration, and by how late they began.
type Tally struct {
	Done, Retried, Poisoned, Snoozed, Discarded int64
	Run, Lag                                    [Buckets]int64
}

// Minute is the tally of a consumer in one minute, on the database's clock.
type Minute struct {
	ConsumerType string
	At           dialect.Moment
	Tally
}

// FailureGroup is a group of related failures of a consumer.
type FailureGroup struct {
	ConsumerType string         `bun:"consumer_type"`
	Fingerprint  string         `bun:"fingerprint"`
	ErrorType    string         `bun:"error_type"`
	Sample       string         `bun:"sample"` // the text of the last failure
	Runs         int64          `bun:"runs"`
	FirstAt      dialect.Moment `bun:"first_at"`
	LastAt       dialect.Moment `bun:"last_at"`
	FirstVersion string         `bun:"first_version"` // of the program that had it first
	RowID        int64          `bun:"row_id"`        // of the last message
	First, Last  time.Time      `bun:"-"`             // of the reported ones, on the clock of this process; zero is now
}

// AsRest returns the failures as part of the group for everything beyond the bound.
func (f FailureGroup) AsRest() FailureGroup {
	f.Fingerprint, f.ErrorType = "other", "_OTHER" // the convention of OpenTelemetry
	return f
}

// Report is what a process reports about itself, with the outcomes of messages since its last
// report.
type Report struct {
	Process  Process // without its instants
	Stopped  bool    // it is the last report
	Minutes  []Minute
	Failures []FailureGroup
}

const (
	sampleBytes = 2 << 10 // of an error's text, kept for its group
	keptKinds   = 500     // separate groups of failures of a consumer
	// reportIdle is less than the 2 s for which other processes wait to write to the same rows.
	reportIdle = time.Second
)

// Report writes the report of a process. It first writes in a statement of its own that the process
// exists. The rest is written all or nothing, and may have to wait for other processes.
func (s *ReportStore) Report(ctx context.Context, db bun.IDB, r Report) error {
	if err := s.present(ctx, db, r); err != nil {
		return fmt.Errorf("process: %w", err)
	}
	if len(r.Minutes)+len(r.Failures) == 0 {
		return nil
	}
	return txn.InTx(txn.WithIdle(ctx, reportIdle), db, func(tx bun.Tx) error {
		if err := s.WriteFirst(ctx, tx); err != nil {
			return err
		}
		if err := s.addMinutes(ctx, tx, r.Minutes); err != nil {
			return fmt.Errorf("minutes: %w", err)
		}
		if err := s.addFailures(ctx, tx, r.Failures); err != nil {
			return fmt.Errorf("failures: %w", err)
		}
		return nil
	})
}

// present records that a process exists.
func (s *ReportStore) present(ctx context.Context, db bun.IDB, r Report) error {
	p, stopped := r.Process, "NULL"
	if r.Stopped {
		stopped = "{now}"
	}
	known, err := s.names.ChangedOne(ctx, db, `UPDATE {processes} SET seen_at = {now}, stopped_at = `+stopped+`, state = ? WHERE id = ?`, string(p.State), p.ID)
	if err != nil || known { // MariaDB does not count a row that had these values already
		return err
	}
	return s.names.Exec(ctx, db, `INSERT INTO {processes}{as row} (id, kind, host, pid, program, version, started_at, seen_at, stopped_at, manifest, state, contract)
VALUES (?, ?, ?, ?, ?, ?, {now}, {now}, `+stopped+`, ?, ?, ?) `+s.names.Merge("id", nil, []string{"seen_at", "stopped_at", "state"}),
		p.ID, p.Kind, errorlog.Clean(p.Host, 255), p.PID, errorlog.Clean(p.Program, 255), errorlog.Clean(p.Version, 255),
		string(p.Manifest), string(p.State), bun.NullZero(string(p.Contract)))
}

func tallyColumns() []string {
	columns := []string{"done", "retried", "poisoned", "snoozed", "discarded"}
	for _, histogram := range []string{"run_", "lag_"} {
		for i := range Buckets {
			columns = append(columns, fmt.Sprint(histogram, i))
		}
	}
	return columns
}

// fields returns pointers to the columns of a tally.
func (t *Tally) fields() []*int64 {
	fields := []*int64{&t.Done, &t.Retried, &t.Poisoned, &t.Snoozed, &t.Discarded}
	for _, histogram := range []*[Buckets]int64{&t.Run, &t.Lag} {
		for i := range histogram {
			fields = append(fields, &histogram[i])
		}
	}
	return fields
}

// Add adds the counts of another tally.
func (t *Tally) Add(other *Tally) {
	add := other.fields()
	for i, field := range t.fields() {
		*field += *add[i]
	}
}

// addMinutes adds tallies to the current minute, in one order, so that no two processes can
// deadlock.
func (s *ReportStore) addMinutes(ctx context.Context, db bun.IDB, minutes []Minute) error {
	if len(minutes) == 0 {
		return nil
	}
	columns := tallyColumns()
	slices.SortFunc(minutes, func(a, b Minute) int { return cmp.Compare(a.ConsumerType, b.ConsumerType) })
	var rows []string
	var args []any
	for i := range minutes {
		rows = append(rows, "(?, {minute}"+strings.Repeat(", ?", len(columns))+")")
		args = append(args, minutes[i].ConsumerType)
		for _, field := range minutes[i].fields() {
			args = append(args, *field)
		}
	}
	return s.names.Exec(ctx, db, `INSERT INTO {minutes}{as row} (consumer_type, minute, `+strings.Join(columns, ", ")+`) VALUES `+strings.Join(rows, ", ")+" "+
		s.names.Merge("consumer_type, minute", columns, nil), args...)
}

// addFailures adds to groups of failures, also in one order.
func (s *ReportStore) addFailures(ctx context.Context, db bun.IDB, failures []FailureGroup) error {
	if len(failures) == 0 {
		return nil
	}
	failures, err := s.fold(ctx, db, failures)
	if err != nil {
		return err
	}
	var rows []string
	var args []any
	for _, f := range failures {
		rows = append(rows, "(?, ?, ?, ?, ?, ?, ?, ?, ?)")
		args = append(args, f.ConsumerType, f.Fingerprint, errorlog.Clean(f.ErrorType, 255), errorlog.Clean(f.Sample, sampleBytes), f.Runs,
			s.ago(ctx, f.First), s.ago(ctx, f.Last), errorlog.Clean(f.FirstVersion, 255), f.RowID)
	}
	return s.names.Exec(ctx, db, `INSERT INTO {failures}{as row} (consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id) VALUES `+strings.Join(rows, ", ")+" "+
		s.names.Merge("consumer_type, fingerprint", []string{"runs"}, []string{"sample", "last_at", "row_id"}), args...)
}

// ago converts an instant of this process's clock to the database's clock.
func (s *ReportStore) ago(ctx context.Context, at time.Time) bun.Safe {
	var ago time.Duration
	if !at.IsZero() {
		ago = time.Since(at)
	}
	return bun.Safe(s.names.After(ctx, -ago))
}

// fold merges failures beyond keptKinds groups of a consumer into one. A process that reports on a
// consumer has locked its row of the minute, so two can find the same place free only at the turn
// of a minute.
func (s *ReportStore) fold(ctx context.Context, db bun.IDB, failures []FailureGroup) ([]FailureGroup, error) {
	var kept []GroupKey
	if err := s.names.Query(ctx, db, `SELECT consumer_type, fingerprint FROM {failures} WHERE consumer_type IN (?)`,
		bun.List(Each(failures, func(f FailureGroup) string { return f.ConsumerType }))).Scan(ctx, &kept); err != nil {
		return nil, err
	}
	known, kinds := make(map[GroupKey]bool), make(map[string]int)
	for _, k := range kept {
		known[k] = true
		kinds[k.ConsumerType]++
	}
	folded := make(map[GroupKey]FailureGroup)
	for _, f := range failures {
		key := GroupKey{ConsumerType: f.ConsumerType, Fingerprint: f.Fingerprint}
		if !known[key] && kinds[f.ConsumerType] >= keptKinds {
			f = f.AsRest()
			key.Fingerprint = f.Fingerprint
		} else if !known[key] {
			known[key] = true
			kinds[f.ConsumerType]++
		}
		if other, several := folded[key]; several {
			f.Runs += other.Runs
			if other.First.Before(f.First) {
				f.First = other.First
			}
			if other.Last.After(f.Last) {
				f.Last = other.Last
			}
		}
		folded[key] = f
	}
	return slices.SortedFunc(maps.Values(folded), func(a, b FailureGroup) int {
		return cmp.Or(cmp.Compare(a.ConsumerType, b.ConsumerType), cmp.Compare(a.Fingerprint, b.Fingerprint))
	}), nil
}

// How long reports are kept.
const (
	processesKept = 7 * 24 * time.Hour
	minutesKept   = 48 * time.Hour
	failuresKept  = 30 * 24 * time.Hour
	crashesKept   = 7 * 24 * time.Hour
)

// ForgetReports deletes expired reports, at most limit rows in a statement, and abandoned breakers. It
// returns how many rows it deleted. It repeats until none are left or ctx ends.
func (s *ReportStore) ForgetReports(ctx context.Context, db bun.IDB, limit int) (total int, err error) {
	breakers := s.names.After(ctx, -breakersKept)
	if total, err = s.names.Changed(ctx, db, `DELETE FROM {breakers} WHERE open_until < ?`, bun.Safe(breakers)); err != nil {
		return total, err
	}
	for _, old := range []struct {
		table, key, at, index string
		kept                  time.Duration
	}{
		{"{processes}", "id", "seen_at", "message_processes_seen", processesKept},
		{"{minutes}", "consumer_type, minute", "minute", "message_minutes_minute", minutesKept},
		{"{failures}", "consumer_type, fingerprint", "last_at", "message_failures_last", failuresKept},
		{"{crashes}", "id", "crashed_at", "message_crashes_at", crashesKept},
		{"{operations}", "id", "created_at", "message_operations_created", operationsKept},
		{"{consumed}", "id, message_id", "expires_at", "consumed_messages_expires", 0}, // where no consumer keeps any more
	} {
		aged := dialect.Trimmed{
			Table: old.table, Key: old.key, Where: old.at + " < " + s.names.After(ctx, -old.kept), OldestBy: old.at,
			Index: "{prefix}" + old.index,
		}
		for n := limit; n == limit; total += n {
			if n, err = s.dialect.Trim(ctx, db, aged, limit); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}
