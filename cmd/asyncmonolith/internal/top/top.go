package top

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"

	tea "charm.land/bubbletea/v2"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// Service reads what the pages show, and pauses consumers. *ops.Session implements it.
type Service interface {
	Overview(ctx context.Context) (ops.Overview, error)
	BlockedKeys(ctx context.Context, limit int) ([]admin.BlockedKey, error)
	Pause(ctx context.Context, consumer, note string) error
	Resume(ctx context.Context, consumer, reason string) error
}

// Config is what is shown to whom.
type Config struct {
	Service Service
	Every   time.Duration      // between looks
	Say     func(error) string // an error as a sentence, without secrets
	// In and Out are a terminal. Env is its environment, in the form of os.Environ.
	In  io.Reader
	Out io.Writer
	Env []string
}

// Run shows what there is to see until the user quits or ctx is done. A database that fails at first is
// an error, and later is waited for. Whatever it has asked for is over when it returns.
func Run(ctx context.Context, c Config) error {
	first, err := see(ctx, c.Service, ops.Overview{})
	if err != nil && !errors.Is(err, ops.ErrBusy) {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	m := newModel(ctx, c, first, err)
	defer m.under.end()
	defer cancel()
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(c.In), tea.WithOutput(c.Out), tea.WithEnvironment(c.Env)).Run()
	if ctx.Err() != nil && errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// see looks once. It asks for keys only where the overview is a new one, so that all goes by its pace.
func see(ctx context.Context, service Service, last ops.Overview) (ops.Overview, error) {
	o, err := service.Overview(ctx)
	if err != nil {
		return o, err
	}
	parked := make(map[string]int64)
	if o.At.Equal(last.At) {
		for _, q := range last.Queues {
			parked[q.Consumer] = q.BlockedKeys
		}
	} else {
		keys, err := service.BlockedKeys(ctx, mostKeys)
		if err != nil {
			return o, err
		}
		for _, key := range keys {
			parked[key.Consumer]++
		}
	}
	queues := slices.Clone(o.Queues) // which others see, too
	for i := range queues {
		queues[i].BlockedKeys = parked[queues[i].Consumer]
	}
	o.Queues = queues
	return o, nil
}

// mostKeys is how many keys that are parked are counted.
const mostKeys = 1000

// underway is what was asked of the database, and has not come back.
type underway struct {
	mu   sync.Mutex
	over bool
	all  sync.WaitGroup
}

// begin reports whether anything may still be asked; all.Done says when it has come back.
func (u *underway) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.over {
		u.all.Add(1)
	}
	return !u.over
}

// end waits for everything, and lets nothing begin.
func (u *underway) end() {
	u.mu.Lock()
	u.over = true
	u.mu.Unlock()
	u.all.Wait()
}
