package engine

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	// soloPatience is how long a solo run waits for other suspects to end, and how
	// long they wait for it.
	soloPatience = 10 * time.Second
	// A process runs messages solo once it has lived for a lease, or soloDelay if longer, and nine
	// fifths of that have passed since the last renewal of a lost process. It does so in any case
	// once it has lived for ten leases, or maxSoloDelay if shorter. Where many processes are lost,
	// what they ran shows nothing.
	soloDelay    = 3 * time.Second
	maxSoloDelay = 30 * time.Second
)

// quarantine keeps crashed messages apart from each other. Those that crashed once run a few at a
// time, and more while they survive, up to half of the workers. Those that crashed more often run
// solo, with no other suspect beside them, so that the message at fault is known. Once enough of
// them have survived, the rest run together, where none is convicted. Clean messages go on
// meanwhile.
type quarantine struct {
	lease       time.Duration
	soloFrom    time.Time // nothing runs solo before a look that began later finds no lost process
	looked      time.Time // when the last look began
	soloAnyway  time.Time // from then on solo runs are allowed in any case
	waiting     bool      // there may be messages that crashed once
	killers     bool      // there may be messages that crashed more often
	together    width     // how many of the former may run at once
	solo        width     // of the latter
	inFlight    int
	reserved    int
	running     map[*task]time.Time // crashed once, by start; zero: they have outlasted soloPatience
	longRunning int                 // how many of running have outlasted it
	othersFirst bool                // others have their turn before the next solo run

	wanted    time.Time // since when a solo run waits for others to end; zero: none waits
	soloAsked bool      // its claim is under way
	soloRuns  int
	soloSince time.Time
	// blamed: a claim of this process may count as solo in the database, since its outcome is not
	// known to be written. acquitting: store.Acquit is under way for it, since another crashed
	// message is about to run.
	blamed, acquitting bool
	crashedLast        bool // the last plan was for crashed messages
	queued             int  // claimed, not started
}

// width is how many may run at once: solo and then all, or a few and then twice as many.
type width struct{ n, survived int }

// survive counts one more survivor. Solo, as many must survive as may have crashed beside the
// message at fault: as many as run together, and as many again whose outcome was not written yet.
func (w *width) survive(limit int) {
	limit, w.survived = max(limit, flow.FewSuspects), w.survived+1
	switch {
	case w.n == 1 && w.survived >= 2*limit:
		w.n, w.survived = limit, 0
	case w.n > 1 && w.survived >= w.n:
		w.n, w.survived = min(2*w.n, limit), 0
	}
}

// begin starts the time without solo runs.
func (s *quarantine) begin(lease time.Duration, now time.Time) {
	s.lease, s.soloFrom, s.soloAnyway = lease, now.Add(max(lease, soloDelay)), now.Add(min(10*lease, maxSoloDelay))
}

// found notes lost processes and crashed messages. A live process renews a lease after a quarter of
// it. A process lost since is visible from two fifths of the lease until its end, to looks that
// come at least every half lease. A sweep may report late.
func (s *quarantine) found(p store.Poll, began, now time.Time) {
	var renewed time.Time // for the last time
	switch {
	case p.Expired || p.Lease > 0 && p.Lease < s.lease*3/5:
		renewed = now.Add(p.Lease - s.lease)
		s.solo = width{}
	case !s.looked.IsZero() && began.Sub(s.looked) > s.lease/2: // a lost process may have been missed
		renewed = now.Add(-s.lease)
	}
	s.soloFrom, s.looked = later(s.soloFrom, renewed.Add(max(s.lease, soloDelay)*9/5)), later(s.looked, began)
	s.waiting, s.killers = len(p.Suspects) > 0, len(p.Killers) > 0
	if !s.waiting && s.inFlight+s.reserved == 0 {
		s.together = width{}
	}
	if !s.killers && s.soloRuns == 0 {
		s.solo = width{}
	}
	s.requestSolo(now)
}

func (s *quarantine) requestSolo(now time.Time) {
	switch {
	case (s.looked.Before(s.soloFrom) || now.Sub(s.looked) > s.lease/2) && now.Before(s.soloAnyway):
		s.wanted = time.Time{}
	case s.killers && s.wanted.IsZero() && !s.soloAsked && s.soloRuns == 0:
		s.wanted = now
	}
}

// pending reports whether there are crashed messages to claim once there is capacity.
func (s *quarantine) pending() bool { return s.waiting || !s.wanted.IsZero() }

// idle reports whether a look has found no crashed message, and none runs solo.
func (s *quarantine) idle() bool {
	return !s.looked.IsZero() && !s.pending() && s.soloRuns == 0 && !s.soloAsked && !s.blamed && !s.acquitting
}

// asked returns the kind of crashed messages whose claim is in flight, or zero.
func (s *quarantine) asked() suspicion {
	switch {
	case s.soloAsked:
		return crashedMore
	case s.reserved > 0:
		return crashedOnce
	}
	return 0
}

// next returns the kind of crashed messages to claim next, or store.Clean. few and solo report
// whether one may start that crashed once, or more often; if not, the others do not wait for it.
func (s *quarantine) next(now time.Time, few, solo bool) store.Selection {
	if s.soloAsked || s.acquitting {
		return store.Clean
	}
	s.together.n, s.solo.n = max(s.together.n, flow.FewSuspects), max(s.solo.n, 1)
	others, waiting, wanted := s.inFlight+s.reserved, few && s.waiting, solo && !s.wanted.IsZero()
	room := s.together.n - others
	othersFirst := s.othersFirst && waiting && room > 0
	switch {
	case wanted && !othersFirst && (others+s.longRunning == 0 || now.Sub(s.wanted) >= soloPatience):
		return store.Killers
	case !waiting, wanted && !othersFirst, s.soloRuns > 0 && now.Sub(s.soloSince) < soloPatience:
		return store.Clean
	case room <= 0, others > 0 && room < s.together.n/4: // not worth a claim
		return store.Clean
	}
	return store.Suspects
}

// plan returns a claim for crashed messages of a kind. A solo run is claimed only if it can begin
// at once: otherwise it would be blamed for what others do while it waits.
func (s *quarantine) plan(kind store.Selection, wants []store.Want, free int) (claimPlan, bool) {
	plan := claimPlan{request: store.ClaimRequest{Wants: wants, MaxBytes: maxClaimBytes, Select: kind}}
	switch {
	case len(wants) == 0:
		return claimPlan{}, false
	case kind == store.Killers:
		s.wanted, s.soloAsked = time.Time{}, true
		plan.request.Limit = min(s.solo.n, free)
		// A message that does not run alone is not blamed alone.
		plan.request.Solo = s.inFlight+s.reserved+s.longRunning == 0 && s.solo.n == 1
		plan.acquits = s.blamed // the run before may be over, but its outcome not written
		return plan, true
	}
	plan.acquits = s.blamed
	s.acquitting = plan.acquits
	s.waiting, s.othersFirst = false, false
	plan.request.Limit = min(s.together.n-s.inFlight-s.reserved, max(free, flow.FewSuspects))
	s.reserved += plan.request.Limit
	return plan, true
}

// remain notes that consumers left out of a claim may have more messages of a kind.
func (s *quarantine) remain(kind store.Selection, now time.Time) {
	if kind == store.Suspects {
		s.waiting = true
		return
	}
	s.killers = true
	s.requestSolo(now)
}

func (s *quarantine) claimed(r store.ClaimRequest, n int, now time.Time) {
	if r.Select == store.Killers {
		// Not n: the message may have finished before we get here.
		s.soloAsked = false
		s.soloRuns += n
		s.soloSince, s.blamed = now, r.Solo && n > 0
		s.killers = s.killers && n > 0
		s.requestNextSolo(now)
		return
	}
	if s.acquitting {
		s.acquitting, s.blamed = false, false
	}
	s.inFlight += n
	s.reserved -= r.Limit
	s.waiting = s.waiting || n == r.Limit // a full claim: there may be more
}

// requestNextSolo asks for the next solo run when one is over, after a turn of the others.
func (s *quarantine) requestNextSolo(now time.Time) {
	if s.soloRuns == 0 {
		s.othersFirst = true
		s.requestSolo(now)
	}
}

// givenBack accounts for a message that did not run.
func (s *quarantine) givenBack(crashes int) {
	switch {
	case crashes == 0:
		return
	case crashes == 1:
		s.inFlight--
	default:
		s.soloRuns--
		s.requestNextSolo(time.Now())
	}
	s.queued--
}

// started accounts for a crashed message that begins to run.
func (s *quarantine) started(t *task, now time.Time) {
	s.queued--
	if t.row.Crashes > 1 {
		return
	}
	if s.running == nil {
		s.running = make(map[*task]time.Time)
	}
	s.running[t] = now
}

// finished accounts for a message that ran.
func (s *quarantine) finished(t *task, workers int) {
	if t.row.Crashes > 1 {
		s.soloRuns--
		s.solo.survive(workers / 2)
		s.requestNextSolo(time.Now())
		return
	}
	since, ok := s.running[t]
	delete(s.running, t)
	switch {
	case !ok:
	case since.IsZero():
		s.longRunning--
	default:
		s.inFlight--
		s.together.survive(workers / 2)
	}
}

// countLongRunning counts messages that crashed once and have run for a while as survived: they may
// go on for hours while others wait for them.
func (s *quarantine) countLongRunning(now time.Time, workers int) {
	for t, since := range s.running {
		if !since.IsZero() && now.Sub(since) >= soloPatience {
			s.finished(t, workers)
			s.running[t], s.longRunning = time.Time{}, s.longRunning+1
		}
	}
}
