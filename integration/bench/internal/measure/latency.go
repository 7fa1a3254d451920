package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/child"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
)

const (
	// latencyRate is how many messages are produced a second.
	latencyRate = 200
	// warmUp is how many messages are not counted.
	warmUp = 100
)

// Latency measures the time from commit to the start of the handler, in
// milliseconds, while single messages are produced at a steady 200 a second. The
// consumer is in this process, or across in another.
func (b *Bench) Latency(ctx context.Context, c contender.Contender, messages int, across bool) (latencies []float64, err error) {
	err = b.fresh(ctx, func(r *run) error {
		if across {
			latencies, err = r.latencyAcross(c, messages+warmUp)
		} else {
			latencies, err = r.latency(c, messages+warmUp)
		}
		return err
	})
	return latencies, err
}

func (r *run) latency(c contender.Contender, messages int) (latencies []float64, err error) {
	t := newTally(messages, 1)
	starts := make([]int64, messages)
	handle := func(payload contender.Signup) {
		starts[payload.UserID] = time.Now().UnixNano()
		t.handle(payload)
	}
	err = r.with(c, contender.Work{Handle: handle}, func(system contender.System) error {
		stop, err := system.Start(r.ctx)
		if err != nil {
			return err
		}
		commits, err := r.trickle(system, messages, latencyRate)
		if err == nil {
			err = errors.Join(t.wait(r.ctx), r.settled(system))
		}
		if err = errors.Join(err, stop()); err != nil {
			return err
		}
		latencies = between(commits, starts)
		return errors.Join(t.check(), system.Verify(r.ctx))
	})
	return latencies, err
}

func (r *run) latencyAcross(c contender.Contender, messages int) (latencies []float64, err error) {
	err = r.with(c, contender.Work{}, func(system contender.System) error {
		consumer, err := r.spawn(1, child.Request{Contender: c.Name, DSN: r.dsn, Record: true})
		if err != nil {
			return err
		}
		if err := consumer.each((*child.Process).Go); err != nil {
			return err
		}
		commits, err := r.trickle(system, messages, latencyRate)
		if err == nil {
			err = r.settled(system)
		}
		found, finished := consumer.finish()
		if err = errors.Join(err, finished, checkRuns(int64(messages), int64(messages), found.Handled, found.Sum)); err != nil {
			return err
		}
		starts := make([]int64, messages)
		for _, s := range found.Starts {
			starts[s.ID] = s.At
		}
		latencies = between(commits, starts)
		return system.Verify(r.ctx)
	})
	return latencies, err
}

// trickle produces so many a second, and returns when each message was
// committed. A slow commit does not hold back the next.
func (r *run) trickle(system contender.System, messages, rate int) (commits []int64, err error) {
	commits = make([]int64, messages)
	var producers sync.WaitGroup
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for i, payload := range contender.Signups(0, messages, 0) {
		select {
		case <-r.ctx.Done():
			producers.Wait()
			return nil, context.Cause(r.ctx)
		case <-ticker.C:
		}
		producers.Go(func() {
			if err := system.ProduceOne(r.ctx, payload); err != nil {
				r.fail(fmt.Errorf("produce: %w", err))
			}
			commits[i] = time.Now().UnixNano()
		})
	}
	producers.Wait()
	return commits, context.Cause(r.ctx)
}

// between returns the latencies after the warm-up in milliseconds. A handler may
// start before the producer has heard of the commit: that counts as 0.
func between(commits, starts []int64) []float64 {
	latencies := make([]float64, 0, len(commits))
	for i := warmUp; i < len(commits); i++ {
		latencies = append(latencies, max(0, float64(starts[i]-commits[i])/float64(time.Millisecond)))
	}
	return latencies
}
