package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// An Event is something a consumer did. It is written before the consumer goes
// on, so a process that dies afterwards cannot take it back.
type Event struct {
	At       time.Time `json:"at"`
	Kind     EventKind `json:"kind"`
	Worker   string    `json:"worker"`
	Consumer string    `json:"consumer"`
	Job      int       `json:"job"`
	Attempt  int       `json:"attempt"`
	Crashes  int       `json:"crashes"`
	Called   time.Time `json:"called,omitzero"` // of a batch: when it was, as a whole
}

// By is the run, and its worker.
func (e Event) By() RunBy { return RunBy{Run{e.Consumer, e.Job}, e.Worker} }

// EventKind is what happened.
type EventKind string

// The kinds of events.
const (
	Started  EventKind = "started"  // the consumer was called
	Finished EventKind = "finished" // it is about to return nil
	Failed   EventKind = "failed"   // it is about to return an error
)

// Run is what a judge tells apart: one consumer and one job.
type Run struct {
	Consumer string
	Job      int
}

// Recorder appends events to a file of its own process. A file, since it
// outlives both the process and the database: what write(2) has taken is kept
// whatever happens to either. It is safe for concurrent use.
type Recorder struct {
	file     *os.File
	dir      string
	worker   string
	pool     *bun.DB          // of the worker, for the consumers that use it
	producer *outbox.Producer // likewise
}

// NewRecorder opens the part of the ledger in dir that belongs to a worker.
func NewRecorder(dir, worker string) (*Recorder, error) {
	file, err := os.OpenFile(filepath.Join(dir, worker+".ledger"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("chaos: ledger: %w", err)
	}
	return &Recorder{file: file, dir: dir, worker: worker}, nil
}

// Record appends one event, in one write.
func (r *Recorder) Record(kind EventKind, consumer string, job, attempt, crashes int) error {
	return r.write(Event{Kind: kind, Consumer: consumer, Job: job, Attempt: attempt, Crashes: crashes})
}

func (r *Recorder) write(e Event) error {
	e.At, e.Worker = time.Now(), r.worker
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("chaos: ledger: %w", err)
	}
	if _, err := r.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("chaos: ledger: %w", err)
	}
	return nil
}

// Close closes the file.
func (r *Recorder) Close() error { return r.file.Close() }

// Ledger is what all workers of a run wrote, in the order of time.
type Ledger []Event

// ReadLedger reads every worker's part.
func ReadLedger(dir string) (Ledger, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.ledger"))
	if err != nil {
		return nil, fmt.Errorf("chaos: ledger: %w", err)
	}
	var ledger Ledger
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("chaos: ledger: %w", err)
		}
		// A kill may cut a write short, where a page of the file ends. Whoever wrote
		// that line did not go on.
		text = text[:bytes.LastIndexByte(text, '\n')+1]
		lines := bufio.NewScanner(bytes.NewReader(text))
		for lines.Scan() {
			var e Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				return nil, fmt.Errorf("chaos: ledger: %s: %q: %w", filepath.Base(name), lines.Text(), err)
			}
			ledger = append(ledger, e)
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("chaos: ledger: %s: %w", filepath.Base(name), err)
		}
	}
	slices.SortStableFunc(ledger, func(a, b Event) int { return a.At.Compare(b.At) })
	return ledger, nil
}

// Count returns how often each run met an event of the kind.
func (l Ledger) Count(kind EventKind) map[Run]int {
	counts := make(map[Run]int)
	for _, e := range l {
		if e.Kind == kind {
			counts[Run{e.Consumer, e.Job}]++
		}
	}
	return counts
}
