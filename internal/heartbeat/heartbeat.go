package heartbeat

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/contract"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	patience  = 2 * time.Second        // of a report: the next one contains what it had
	lastWord  = 400 * time.Millisecond // of the last report
	least     = time.Second            // between reports that are asked for
	cleaning  = 10 * time.Minute       // between deletes of old rows
	deleted   = 1000                   // rows that one such statement deletes
	maxGroups = 50                     // kinds of failures in one report
)

// Instance identifies this process of the operating system. The host and the PID do not: containers of
// one pod have the same, and so has a container that was restarted. It is immutable.
var Instance = uuid.NewString()

// Config configures a Reporter.
type Config struct {
	Store    *store.Store
	DB       *bun.DB
	Registry *bus.Registry // its HeartbeatInterval is the time between reports
	ID       string        // defaults to a new one
	Kind     string
	Takes    Manifest
	Relays   map[string]contract.Relay // that are not in the registry
	Doing    func() State
	Logger   *slog.Logger
}

// Reporter reports one run to the database. The nil Reporter reports nothing. It is safe for
// concurrent use.
type Reporter struct {
	config   Config
	interval time.Duration // between reports
	process  store.Process
	failing  bool // the last report was not written
	cleaned  time.Time
	soon     chan struct{} // asks for a report before its time

	mu      sync.Mutex
	tallies map[string]*Tally
	groups  map[group]*store.FailureGroup
}

// New returns a Reporter.
func New(c Config) *Reporter {
	interval, _ := access.Heartbeat(c.Registry)
	program, _ := program()
	version := Version(c.Registry)
	host, _ := os.Hostname()
	return &Reporter{
		config: c, interval: interval, tallies: make(map[string]*Tally), groups: make(map[group]*store.FailureGroup),
		process: store.Process{
			ID: cmp.Or(c.ID, uuid.NewString()), Kind: c.Kind, Host: host, PID: os.Getpid(), Program: program, Version: version,
			Manifest: asJSON(c.Takes), Contract: contractOf(c),
		},
		cleaned: time.Now().Add(-rand.N(cleaning)), soon: make(chan struct{}, 1),
	}
}

// Version returns the version of this program as it is stored: the registry's, or that of the build.
// It may be empty.
func Version(registry *bus.Registry) string {
	_, version := access.Heartbeat(registry)
	if version == "" {
		_, version = program()
	}
	return errorlog.Clean(version, 255)
}

// program returns the program of this process and its version: its module's, else the revision it
// was built from. Both may be empty.
func program() (name, version string) {
	name = filepath.Base(os.Args[0])
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return name, ""
	}
	if info.Path != "" && info.Path != "command-line-arguments" {
		name = path.Base(info.Path)
	}
	if version = info.Main.Version; version != "" && version != "(devel)" {
		return name, version
	}
	version = ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			version = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true" && version != "":
			version += "+dirty"
		}
	}
	return name, version
}

// maxContract is the size of the largest description that is reported.
const maxContract = 1 << 20

// contractOf describes the payloads of a program: a run of each kind has the same registry, so only a
// processor reports it, and runs with relays of their own.
func contractOf(c Config) []byte {
	if c.Kind != "processor" && len(c.Relays) == 0 {
		return nil
	}
	d := contract.Of(c.Registry)
	maps.Copy(d.Relays, c.Relays)
	text := asJSON(d)
	if len(text) > maxContract {
		return nil
	}
	return text
}

func asJSON(v any) []byte {
	if text, err := json.Marshal(v); err == nil {
		return text
	}
	return []byte("null")
}

// Start begins to report, unless ctx is over. The reports use the values of ctx and do not end with
// it. end writes the last report and waits for it.
func (r *Reporter) Start(ctx context.Context) (end func()) {
	if r == nil || ctx.Err() != nil {
		return func() {}
	}
	ctx, over := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run(ctx)
	}()
	return func() {
		over()
		<-done
	}
}

// Soon asks for the next report now. Reports that are asked for are a second apart.
func (r *Reporter) Soon() {
	if r == nil {
		return
	}
	select {
	case r.soon <- struct{}{}:
	default:
	}
}

// run reports until ctx is over, and then once more.
func (r *Reporter) run(ctx context.Context) {
	for {
		r.report(ctx, patience, false)
		began, soon := time.Now(), r.soon
		timer := time.NewTimer(time.Duration(float64(r.interval) * (0.8 + 0.4*rand.Float64())))
		for waiting := true; waiting; {
			select {
			case <-soon:
				timer.Reset(least - time.Since(began))
				soon = nil
			case <-timer.C:
				waiting = false
			case <-ctx.Done():
				timer.Stop()
				r.report(ctx, lastWord, true)
				return
			}
		}
	}
}

// report writes what was counted. What cannot be written goes into the next report. Once ctx ends,
// it has as long as the last report.
func (r *Reporter) report(ctx context.Context, patience time.Duration, last bool) {
	over := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if !last {
		defer context.AfterFunc(over, func() { time.AfterFunc(lastWord, cancel) })()
	}
	report := store.Report{Process: r.process, Stopped: last}
	state := r.config.Doing().reported()
	state.Every, state.Instance = r.interval, Instance
	report.Process.State = asJSON(state)
	report.Minutes, report.Failures = r.take()
	err := r.config.Store.Reports.Report(ctx, r.config.DB, report)
	if err != nil {
		r.putBack(report.Minutes, report.Failures)
	}
	if err != nil && !r.failing && over.Err() == nil {
		r.config.Logger.Warn("heartbeat not written", "error", errorlog.Text(err))
	}
	r.failing = err != nil
	if now := time.Now(); err == nil && !last && now.Sub(r.cleaned) > cleaning {
		r.cleaned = now
		if _, err := r.config.Store.Reports.ForgetReports(ctx, r.config.DB, deleted); err != nil && ctx.Err() == nil {
			r.config.Logger.Warn("old reports not deleted", "error", errorlog.Text(err))
		}
	}
}
