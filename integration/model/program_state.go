package model

import (
	"fmt"
	"maps"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// What the public API does, by the same rules of the claim ledger.

var _ Application = (*State)(nil)

// Cancel implements Application.
func (s *State) Cancel(key Key) { delete(s.view.Rows, key) }

// Reschedule implements Application.
func (s *State) Reschedule(key Key, due time.Duration) {
	row := s.view.Rows[key]
	row.Due = due
	s.put(key, row)
}

// RunNow implements Application.
func (s *State) RunNow(key Key) { s.Reschedule(key, s.now) }

// Pause implements Application. A consumer that is paused already keeps its time.
func (s *State) Pause(consumer string) {
	if _, paused := s.view.Paused[consumer]; !paused {
		s.view.Paused[consumer] = s.now
	}
}

// Resume implements Application.
func (s *State) Resume(consumer string) (paused bool) {
	_, paused = s.view.Paused[consumer]
	delete(s.view.Paused, consumer)
	return paused
}

// Edit implements Application.
func (s *State) Edit(key Key, payload int) (pending bool) {
	if pending = s.Requeue(key); pending {
		row := s.view.Rows[key]
		row.Payload = payload
		s.put(key, row)
	}
	return pending
}

// nextMinute is when the schedule fires next: it does so every minute.
func (s *State) nextMinute() time.Duration {
	return epoch().Add(s.now).Truncate(time.Minute).Add(time.Minute).Sub(epoch())
}

// WriteSchedule implements Application.
func (s *State) WriteSchedule(payload int) {
	row, exists := s.view.Schedules[scheduled]
	if !exists {
		row.Due = s.nextMinute()
	}
	row.Payload = payload
	s.view.Schedules[scheduled] = row
}

// ChangeSchedule implements Application.
func (s *State) ChangeSchedule(change ScheduleChange) (exists bool) {
	row, exists := s.view.Schedules[scheduled]
	if !exists {
		return false
	}
	switch change {
	case PauseSchedule:
		row.Paused = true
	case ResumeSchedule:
		if row.Paused {
			row.Paused, row.Due = false, s.nextMinute()
		}
	case TriggerSchedule:
		row.Triggered = true
	}
	s.view.Schedules[scheduled] = row
	if change == DeleteSchedule {
		delete(s.view.Schedules, scheduled)
	}
	return true
}

// Fire implements Application. Minutes that were missed fire once.
func (s *State) Fire(first int) (messages int) {
	row, exists := s.view.Schedules[scheduled]
	if !exists {
		return 0
	}
	if row.Triggered {
		row.Triggered = false
		messages++
	}
	if !row.Paused && row.Due <= s.now {
		row.Due = s.nextMinute()
		messages++
	}
	s.view.Schedules[scheduled] = row
	for i := range messages {
		s.produce(Produce{Message: first + i, Consumers: unordered(), Payload: row.Payload})
	}
	return messages
}

// Next implements Application: a claim of one message, the run, and a settle.
func (s *State) Next(consumer string, ending Ending) (ran bool) {
	const owner = "program"
	if _, paused := s.view.Paused[consumer]; paused {
		return false
	}
	keys := s.Claim(Request{Owner: owner, Consumers: []string{consumer}, Limit: 1, Lanes: Guess{Run: 1}})
	if len(keys) == 0 {
		return false
	}
	row, r := s.view.Rows[keys[0]], Result{Claim: s.claims, Key: keys[0], Outcome: store.Done}
	switch ending {
	case Succeed:
		if consumer == transactional {
			s.Transact(Transaction{Owner: owner, Claim: r.Claim, Key: r.Key, Attempts: row.Attempts, Crashes: row.Crashes})
			r.Outcome = store.Release
		}
	case Fail, Panic:
		r.Outcome, r.Delay = store.Failed, retryAfter
		if row.Attempts+1 == maxAttempts {
			r.Outcome, r.Reason = store.Poison, fmt.Sprintf("attempt %d of %d failed", maxAttempts, maxAttempts)
		}
	case Snooze:
		r.Outcome, r.Delay = store.Snoozed, snoozed
	case Condemn:
		r.Outcome, r.Reason = store.Poison, "permanent error"
	}
	s.Settle(owner, []Result{r})
	return true
}

// InTx implements Application.
func (s *State) InTx(rolledBack bool, calls func()) {
	before := s.clone()
	if calls(); rolledBack {
		*s = *before
	}
}

// Savepoint implements Application.
func (s *State) Savepoint() { s.saved = s.clone() }

// RollbackToSavepoint implements Application.
func (s *State) RollbackToSavepoint() { *s = *s.saved }

// clone copies what a rollback takes back.
func (s *State) clone() *State {
	c := *s
	c.view, c.place, c.rank, c.orderKey = s.View(), maps.Clone(s.place), maps.Clone(s.rank), maps.Clone(s.orderKey)
	return &c
}
