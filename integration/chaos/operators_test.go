//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// operator does what operators do, to any message.
type operator struct {
	*stress
	*rand.Rand
	db      *bun.DB
	admin   *admin.Client
	poisons *poison.Store
	stopped sync.WaitGroup
}

func (s *stress) newOperator() *operator {
	s.Helper()
	dsn := chaos.Source(s.dsn).As(s.known.Operator)
	o := &operator{stress: s, Rand: rand.New(rand.NewPCG(s.Uint64(), s.Uint64())), db: openDSN(s, string(dsn))}
	var errAdmin, errPoisons error
	o.admin, errAdmin = admin.NewClient(s.registry)
	o.poisons, errPoisons = poison.NewStore(s.registry)
	testapp.OK(s, errors.Join(errAdmin, errPoisons))
	return o
}

// work goes on until it is time to stop. What it has paused is resumed then.
func (o *operator) work(stop time.Time) {
	defer o.stopped.Wait()
	for time.Now().Before(stop) {
		pause(time.Duration(o.IntN(200)) * time.Millisecond)
		table := "consumer_messages"
		deed := o.IntN(8)
		if deed < 2 {
			table = "poisoned_messages"
		}
		m, ok := o.choose(table)
		if !ok {
			continue
		}
		if err := o.do(deed, m); err != nil {
			o.Errorf("operator: message %d of %v: %v", m.ID, m.run(), err)
		}
	}
}

// chosen is a message that an operator looks at.
type chosen struct {
	ID       int64
	Consumer string
	Job      int
}

func (m chosen) run() chaos.Run { return chaos.Run{Consumer: m.Consumer, Job: m.Job} }

// choose chooses a message of a table, if there is one.
func (o *operator) choose(table string) (m chosen, ok bool) {
	var rows []chosen
	const query = "SELECT id, consumer_type AS consumer, (payload::json->>'n')::int AS job FROM ? ORDER BY random() LIMIT 1"
	if err := o.db.NewRaw(query, bun.Ident(table)).Scan(o.ctx, &rows); err != nil {
		o.Errorf("operator: %v", err)
	}
	if len(rows) == 0 {
		return m, false
	}
	return rows[0], true
}

// do does one of the deeds.
func (o *operator) do(deed int, m chosen) error {
	at := time.Now()
	var changed int
	var err error
	switch deed {
	case 0:
		_, err = o.poisons.Requeue(o.ctx, o.db, m.ID)
		o.moved("requeue", m)
	case 1:
		changed, err = o.poisons.Discard(o.ctx, o.db, m.ID)
		o.withdrawn("discard", m, at, changed == 1)
	case 2:
		var result admin.Result
		result, err = o.admin.Cancel(o.ctx, o.db, m.ID)
		o.withdrawn("cancel", m, at, result.Changed == 1)
	case 3:
		o.stopped.Go(func() { o.stop(m) })
	case 4:
		o.moved("run now", m)
		_, err = o.admin.RunNow(o.ctx, o.db, m.ID)
	case 5:
		o.moved("reschedule", m)
		_, err = o.admin.Reschedule(o.ctx, o.db, at.Add(time.Duration(o.IntN(1500))*time.Millisecond), m.ID)
	case 6:
		o.did("pause")
		err = o.admin.Pause(o.ctx, o.db, m.Consumer, admin.PauseNote{})
		pause(time.Duration(o.IntN(500)) * time.Millisecond)
		err = errors.Join(err, o.admin.Resume(o.ctx, o.db, m.Consumer))
	case 7:
		o.did("explain")
		if _, err = o.admin.Explain(o.ctx, o.db, m.ID); errors.Is(err, admin.ErrNotFound) {
			err = nil
		}
	}
	return err
}

// stop stops a message, whether it runs or not. What no process has answered to may still be stopped.
func (o *operator) stop(m chosen) {
	at := time.Now()
	ctx, cancel := context.WithTimeout(o.ctx, 15*time.Second)
	defer cancel()
	how, err := o.admin.Stop(ctx, o.db, m.ID)
	if err != nil && !errors.Is(err, admin.ErrNotFound) && ctx.Err() == nil {
		o.Errorf("operator: stop message %d: %v", m.ID, err)
	}
	o.withdrawn("stop", m, at, how == admin.StopCancelled || ctx.Err() != nil)
}

func (o *operator) did(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deeds[what]++
}

func (o *operator) moved(what string, m chosen) {
	o.did(what)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known.Moved[m.run()] = true
}

// withdrawn notes that a message is gone, if so.
func (o *operator) withdrawn(what string, m chosen, at time.Time, gone bool) {
	if !gone {
		return
	}
	o.did(what)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known.Withdrawn[m.run()] = at
}
