package top

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// Service reads what is shown, and pauses consumers. *operator.Session implements it.
type Service interface {
	Overview(ctx context.Context) (operator.Overview, error)
	Pause(ctx context.Context, consumer, note string) error
	Resume(ctx context.Context, consumer, reason string) error
}

// Config is the configuration of [Run].
type Config struct {
	Service Service
	Every   time.Duration      // between reads
	Say     func(error) string // an error as a sentence, without secrets
	// In and Out are a terminal. Env is its environment, in the form of os.Environ.
	In  io.Reader
	Out io.Writer
	Env []string
}

// Run shows the screen until the user quits or ctx is done. It returns an error if the first read fails, and retries later
// ones. All queries have returned when it returns.
func Run(ctx context.Context, c Config) error {
	first, err := c.Service.Overview(ctx)
	if err != nil && !errors.Is(err, ops.ErrBusy) {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	m := newModel(ctx, c, first, err)
	defer m.inFlight.end()
	defer cancel()
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(c.In), tea.WithOutput(c.Out), tea.WithEnvironment(c.Env)).Run()
	if ctx.Err() != nil && errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// inFlight is the queries that have not returned.
type inFlight struct {
	mu   sync.Mutex
	over bool
	all  sync.WaitGroup
}

// begin reports whether a query may still begin; all.Done says that it has returned.
func (f *inFlight) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		f.all.Add(1)
	}
	return !f.over
}

// end waits for all queries, and lets none begin.
func (f *inFlight) end() {
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	f.all.Wait()
}
