//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// StepsOfJob is how many steps a job of a stepped consumer has.
const StepsOfJob = 4

// steps runs the steps of a job. Each call of a step's function is a row of step_calls, and each result that
// Step has returned one of step_results, with the time.
func (r *Recorder) steps(ctx context.Context, job Job) error {
	note := func(ctx context.Context, table string, step int) error {
		_, err := r.pool.NewRaw("INSERT INTO "+table+" (job, step, at) VALUES (?, ?, ?)", job.N, step, time.Now().UnixNano()).Exec(ctx)
		return err
	}
	for step := range StepsOfJob {
		got, err := outbox.Step(ctx, fmt.Sprint("step ", step), func(ctx context.Context) (int, error) {
			if err := note(ctx, "step_calls", step); err != nil {
				return 0, err
			}
			pause(time.Duration(rand.Int64N(int64(4 * time.Millisecond))))
			return job.N + step, nil
		})
		if err == nil && got != job.N+step {
			err = fmt.Errorf("job %d, step %d: got the result %d, want %d", job.N, step, got, job.N+step)
		}
		if err == nil {
			err = note(ctx, "step_results", step)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
