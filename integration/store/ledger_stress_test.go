package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// ledgerAudit has the database itself write down, in the transaction that does
// it, what enters and leaves claims and what happens to messages. It does not
// depend on how the library spells its statements.
const ledgerAudit = `
CREATE TABLE audit (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
  app text NOT NULL DEFAULT current_setting('application_name'), event text NOT NULL, claim bigint, message bigint NOT NULL, attempts int);
CREATE INDEX ON audit (tx, message);
CREATE INDEX ON audit (message);
CREATE FUNCTION audit_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP <> 'INSERT' THEN
    INSERT INTO audit (event, claim, message) SELECT 'left', OLD.id, x FROM unnest(OLD.message_ids) x
    WHERE TG_OP = 'DELETE' OR x <> ALL (NEW.message_ids);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO audit (event, claim, message) SELECT 'claimed', NEW.id, x FROM unnest(NEW.message_ids) x
    WHERE TG_OP = 'INSERT' OR x <> ALL (OLD.message_ids);
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION audit_message() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'DELETE' THEN INSERT INTO audit (event, message, attempts) VALUES ('gone', OLD.id, OLD.attempts);
  ELSIF NEW.attempts > OLD.attempts THEN INSERT INTO audit (event, message, attempts) VALUES ('failed', NEW.id, NEW.attempts);
  ELSE INSERT INTO audit (event, message, attempts) VALUES ('changed', NEW.id, NEW.attempts);
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION audit_poisoned() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO audit (event, message, attempts)
  VALUES (CASE WHEN NEW.reason LIKE 'process lost%' THEN 'killed' ELSE 'poisoned' END, NEW.id, NEW.attempts);
  RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON message_claims FOR EACH ROW EXECUTE FUNCTION audit_claim();
CREATE TRIGGER audit AFTER UPDATE OR DELETE ON consumer_messages FOR EACH ROW EXECUTE FUNCTION audit_message();
CREATE TRIGGER audit AFTER INSERT ON poisoned_messages FOR EACH ROW EXECUTE FUNCTION audit_poisoned();`

// ledgerLaws finds in the audit what must never happen, by the name of the law.
// Sequence numbers follow the order of commits where it matters: a record sees
// only claims whose end was committed, and so numbered, before it began.
func ledgerLaws() map[string]string {
	return map[string]string{
		"a message is claimed only when no other claim holds it (I3)": `
			SELECT message FROM (SELECT message, event, lag(event, 1, 'left') OVER (PARTITION BY message ORDER BY seq) AS before
			  FROM audit WHERE event IN ('claimed', 'left')) x WHERE event = before`,
		"a message enters and leaves a claim once": `
			SELECT message FROM audit WHERE event IN ('claimed', 'left') GROUP BY claim, message
			HAVING count(*) FILTER (WHERE event = 'claimed') <> 1 OR count(*) FILTER (WHERE event = 'left') > 1`,
		"a message changes only as it leaves a claim, or by a consumer's transaction (I2, I4)": `
			SELECT message FROM audit w WHERE event IN ('failed', 'changed', 'gone') AND NOT EXISTS (
			  SELECT 1 FROM audit l WHERE l.tx = w.tx AND l.message = w.message AND l.event IN ('left', 'effect'))`,
		"a message changes once as it leaves a claim": `
			SELECT message FROM audit WHERE event IN ('failed', 'changed', 'gone') GROUP BY tx, message HAVING count(*) > 1`,
		"a message is gone once, and nothing happens to it afterwards": `
			SELECT message FROM audit WHERE event IN ('failed', 'changed', 'gone', 'poisoned', 'killed', 'effect') GROUP BY message
			HAVING count(*) FILTER (WHERE event = 'gone') > 1
			  OR max(seq) FILTER (WHERE event IN ('failed', 'changed')) > max(seq) FILTER (WHERE event = 'gone')`,
		"a message is poisoned once, as it goes": `
			SELECT message FROM audit p WHERE event IN ('poisoned', 'killed') AND (
			  NOT EXISTS (SELECT 1 FROM audit g WHERE g.tx = p.tx AND g.message = p.message AND g.event = 'gone')
			  OR (SELECT count(*) FROM audit o WHERE o.message = p.message AND o.event IN ('poisoned', 'killed')) > 1)`,
		"attempts are the failures that were applied": `
			SELECT message FROM audit GROUP BY message
			HAVING max(attempts) FILTER (WHERE event = 'gone') <> count(*) FILTER (WHERE event = 'failed')
			  OR max(attempts) FILTER (WHERE event = 'poisoned') <> count(*) FILTER (WHERE event = 'failed') + 1
			  OR max(attempts) FILTER (WHERE event = 'killed') <> count(*) FILTER (WHERE event = 'failed')`,
		"the effect of a consumer's transaction happens once, as the message goes (I6)": `
			SELECT message FROM audit e WHERE event = 'effect' AND (
			  NOT EXISTS (SELECT 1 FROM audit g WHERE g.tx = e.tx AND g.message = e.message AND g.event = 'gone')
			  OR (SELECT count(*) FROM audit o WHERE o.message = e.message AND o.event = 'effect') > 1)`,
	}
}

// broken lists the laws that were broken, with the number of times.
func (l *ledger) broken() []string {
	l.Helper()
	var laws []string
	for law, query := range ledgerLaws() {
		if n := l.number("SELECT count(*) FROM (" + query + ") x"); n > 0 {
			laws = append(laws, fmt.Sprintf("%s: broken %d times", law, n))
		}
	}
	return laws
}

// stress runs claimers that do everything a processor may do, and much that only
// happens to one in bad times: they vanish, come late, repeat and reorder.
type stress struct {
	*ledger
	claims, settles, recoveries *bun.DB
	conflicts                   conflictCounter
	mutant                      bool        // errors are expected
	calm                        atomic.Bool // from now on everything goes well

	late       sync.WaitGroup
	backlog    atomic.Int64
	doubles    atomic.Int64 // messages seen in two claims
	claimed    atomic.Int64
	produced   atomic.Int64
	applied    atomic.Int64 // results that settle and finish say were written
	fenced     atomic.Int64
	repeated   atomic.Int64
	recovered  atomic.Int64
	poisoned   atomic.Int64
	committed  atomic.Int64
	suspicious atomic.Int64 // claims of messages that have crashed
}

const stressLease = 150 * time.Millisecond

// newStress prepares the databases; a mutant is what goes wrong on the wire, as
// pairs of texts, in the statements of claims or of settles.
func newStress(t *testing.T, claimMutant, settleMutant []string) *stress {
	t.Helper()
	// More goes on in the same time when nobody waits for the disk.
	s := &stress{ledger: newLedger(t, "synchronous_commit=off"), mutant: claimMutant != nil || settleMutant != nil}
	s.exec(ledgerAudit)
	open := func(name string, mutant []string) *bun.DB {
		dsn := s.dsn + "&application_name=" + name
		if mutant == nil {
			return testdb.OpenPostgres(t, dsn).WithQueryHook(&s.conflicts)
		}
		return testdb.OpenRewritten(t, dsn, testdb.Replacing(t, mutant...)).WithQueryHook(&s.conflicts)
	}
	s.claims, s.settles, s.recoveries = open("claim", claimMutant), open("settle", settleMutant), open("recover", nil)
	return s
}

func (s *stress) check(what string, err error) {
	s.Helper()
	if err != nil && !s.mutant {
		s.Errorf("%s: %v", what, err)
	}
}

// run works for a while, or until done says so; then it calms down and drains.
func (s *stress) run(seed uint64, d time.Duration, done func() bool) {
	s.Helper()
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var workers sync.WaitGroup
	for i := range 8 {
		workers.Go(func() { s.claimer(ctx, fmt.Sprint("owner-", i), rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	for range 2 {
		workers.Go(func() { s.recoverer(ctx) })
	}
	workers.Go(func() { s.producer(ctx) })
	workers.Go(func() { s.watcher(ctx) })
	end := time.Now().Add(d)
	for time.Now().Before(end) && !done() {
		<-time.After(200 * time.Millisecond)
	}
	s.calm.Store(true)
	if !s.mutant {
		testapp.Eventually(s.T, "everything is drained", func() bool {
			return s.number("SELECT (SELECT count(*) FROM consumer_messages) + (SELECT count(*) FROM message_claims)") == 0
		})
	}
	stop()
	workers.Wait()
	s.late.Wait()
}

// pause waits a little.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (s *stress) producer(ctx context.Context) {
	for ctx.Err() == nil && !s.calm.Load() {
		if s.backlog.Load() < 300 {
			s.add(30)
			s.produced.Add(30)
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// watcher polls for what the audit could only tell afterwards.
func (s *stress) watcher(ctx context.Context) {
	for ctx.Err() == nil {
		s.doubles.Add(int64(s.heldTwice()))
		s.backlog.Store(int64(s.number("SELECT count(*) FROM consumer_messages")))
		pause(ctx, 3*time.Millisecond)
	}
}

func (s *stress) recoverer(ctx context.Context) {
	for ctx.Err() == nil {
		found, err := s.Claims.Recover(s.ctx, s.recoveries, 3)
		s.check("recover", err)
		s.recovered.Add(int64(found.Claims))
		s.poisoned.Add(int64(found.Poisoned))
		pause(ctx, 15*time.Millisecond)
	}
}

func (s *stress) claimer(ctx context.Context, owner string, dice *rand.Rand) {
	wants := ledgerWants(0)
	for renewed := time.Now(); ctx.Err() == nil; {
		if time.Since(renewed) > stressLease/3 {
			renewed = time.Now()
			_, err := s.Claims.Extend(s.ctx, s.settles, owner, stressLease)
			s.check("extend", err)
		}
		// Renewing renews all of an owner's claims, so what is to be lost needs another.
		fate := dice.IntN(100)
		r := store.ClaimRequest{Owner: owner, Lease: stressLease, Wants: wants, MaxBytes: 1 << 20, Limit: 8}
		if dice.IntN(3) == 0 {
			r.Select = store.Selection(dice.IntN(3))
		}
		if !s.calm.Load() && fate < 20 {
			r.Owner += "-doomed"
		}
		if r.Select == store.Killers {
			r.Limit, r.Solo = 1, true
		}
		for i := range wants {
			wants[i].Limit = dice.IntN(8)
			if dice.IntN(4) == 0 {
				wants[i].After = store.Position{}
			}
		}
		c, err := s.Claims.Claim(s.ctx, s.claims, r)
		s.check("claim", err)
		if c.ID == 0 {
			pause(ctx, time.Duration(dice.IntN(3000))*time.Microsecond)
			continue
		}
		s.claimed.Add(1)
		if r.Select != store.Clean {
			s.suspicious.Add(1)
		} else {
			for i := range wants {
				if c.Found[i] > 0 {
					wants[i].After = c.Last[i]
				}
			}
		}
		s.work(c, r.Owner, fate, dice)
	}
}

// work decides what becomes of a claim: fates below 20 are those of claims that
// nobody renews.
func (s *stress) work(c store.Claim, owner string, fate int, dice *rand.Rand) {
	switch calm := s.calm.Load(); {
	case calm:
		s.finish(owner, c)
	case fate < 8: // the owner vanishes
	case fate < 20: // the owner comes late
		results := s.outcomes(c, dice)
		after := stressLease + time.Duration(dice.IntN(int(stressLease)))
		s.late.Go(func() {
			<-time.After(after)
			s.settle(owner, results)
		})
	case fate < 24:
		s.check("disclaim", s.Claims.Disclaim(s.ctx, s.claims, owner, []int64{c.ID}))
	case fate < 34:
		hold := time.Duration(dice.IntN(2 * int(stressLease)))
		s.late.Go(func() { s.transact(owner, c, hold) })
	case fate < 55:
		s.finish(owner, c)
		if dice.IntN(6) == 0 {
			s.repeated.Add(1)
			s.finish(owner, c)
		}
	default:
		s.settleInParts(owner, s.outcomes(c, dice), dice)
	}
}

// outcomes draws results for all messages of a claim, in any order.
func (s *stress) outcomes(c store.Claim, dice *rand.Rand) []store.Result {
	results := make([]store.Result, len(c.Messages))
	for i, m := range c.Messages {
		results[i] = store.Result{Claim: c.ID, Message: m.ID, Outcome: store.Done, Delay: time.Duration(dice.IntN(20)) * time.Millisecond}
		switch n := dice.IntN(20); {
		case n < 5:
			results[i].Outcome = store.Failed
		case n < 7:
			results[i].Outcome = store.Snoozed
		case n < 9:
			results[i].Outcome = store.Release
		case n < 10:
			results[i].Outcome, results[i].Reason = store.Poison, "drawn"
		}
		if results[i].Delay < 5*time.Millisecond {
			results[i].Delay = 0
		}
	}
	dice.Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
	return results
}

// settleInParts sends parts in any order, some late and some again.
func (s *stress) settleInParts(owner string, results []store.Result, dice *rand.Rand) {
	for len(results) > 0 {
		n := 1 + dice.IntN(len(results))
		part := results[:n]
		results = results[n:]
		// Results come in one by one, so a claim may be there for a while in part.
		wait, again := time.Duration(0), time.Duration(-1)
		if dice.IntN(2) == 0 {
			wait = time.Duration(dice.IntN(40)) * time.Millisecond
		}
		if dice.IntN(4) == 0 {
			again = time.Duration(dice.IntN(30)) * time.Millisecond
		}
		s.late.Go(func() {
			<-time.After(wait)
			s.settle(owner, part)
			if again >= 0 {
				<-time.After(again)
				s.repeated.Add(1)
				s.settle(owner, part)
			}
		})
	}
}

func (s *stress) settle(owner string, results []store.Result) {
	settled, err := s.Claims.Settle(s.ctx, s.settles, owner, stressLease, results)
	s.check("settle", err)
	s.applied.Add(int64(settled.Applied))
	s.fenced.Add(int64(len(results) - settled.Applied))
}

func (s *stress) finish(owner string, c store.Claim) {
	finished, err := s.Claims.Finish(s.ctx, s.settles, owner, []int64{c.ID})
	s.check("finish", err)
	for _, f := range finished {
		s.applied.Add(int64(f.Messages))
	}
}

// transact runs the messages as a transactional consumer would, one by one.
func (s *stress) transact(owner string, c store.Claim, hold time.Duration) {
	refused := errors.New("refused")
	for _, m := range c.Messages {
		err := s.settles.RunInTx(s.ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
			f := store.Fence{Owner: owner, Idle: time.Minute,
				Messages: []store.Fenced{{Claim: c.ID, ID: m.ID, Attempts: m.Attempts, Crashes: m.Crashes}}}
			if held, err := s.Claims.Fence(ctx, tx, f); err != nil || len(held) == 0 {
				return errors.Join(refused, err)
			}
			if _, err := tx.NewRaw("INSERT INTO audit (event, message) VALUES ('effect', ?)", m.ID).Exec(ctx); err != nil {
				return err
			}
			<-time.After(hold / time.Duration(len(c.Messages)))
			if removed, err := s.Claims.Remove(ctx, tx, store.Session{}, m.ID); err != nil || removed != 1 {
				return fmt.Errorf("remove: got %d, error %v, want 1", removed, err)
			}
			return nil
		})
		switch {
		case err == nil:
			s.committed.Add(1)
		case !errors.Is(err, refused):
			s.check("transaction", err)
		}
		s.settle(owner, []store.Result{{Claim: c.ID, Message: m.ID, Outcome: store.Release}})
	}
}

func TestLedgerUnderStress(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	s := newStress(t, nil, nil)
	s.run(seed, 4*time.Second, func() bool { return t.Failed() })
	t.Logf("seed %d: %d messages, %d claims, %d of them of crashed messages, %d recoveries, %d fenced and %d repeated results, %d transactions, %d poisoned by crashes, %d serialization failures",
		seed, s.produced.Load(), s.claimed.Load(), s.suspicious.Load(), s.recovered.Load(), s.fenced.Load(), s.repeated.Load(),
		s.committed.Load(), s.poisoned.Load(), s.conflicts.serialization.Load())
	for _, law := range s.broken() {
		t.Error(law)
	}
	if got := s.doubles.Load(); got != 0 {
		t.Errorf("messages seen in two claims: got %d, want none", got)
	}
	if got := s.conflicts.deadlocks.Load(); got != 0 {
		t.Errorf("deadlocks: got %d, want none", got)
	}
	if got, want := s.number("SELECT count(*) FROM audit WHERE event = 'gone'"), int(s.produced.Load()); got != want {
		t.Errorf("messages gone: got %d, want the %d produced", got, want)
	}
	if got, want := int(s.applied.Load()), s.number("SELECT count(*) FROM audit WHERE event = 'left' AND app = 'settle'"); got != want {
		t.Errorf("results that settle and finish say they applied: got %d, want the %d messages that left their claims by them", got, want)
	}
	if got, want := int(s.committed.Load()), s.number("SELECT count(*) FROM audit WHERE event = 'effect'"); got != want {
		t.Errorf("transactions committed: got %d, want %d effects", got, want)
	}
	for what, n := range map[string]int64{
		"recoveries": s.recovered.Load(), "fenced results": s.fenced.Load(), "repeated statements": s.repeated.Load(),
		"transactions": s.committed.Load(), "claims of crashed messages": s.suspicious.Load(),
	} {
		if n == 0 {
			t.Errorf("%s: got none, want some, or the run proves little", what)
		}
	}
}

// The oracle of the stress test has to see what goes wrong when a guard is gone.
func TestLedgerStressCatchesMutants(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		claim, settle []string
	}{
		{"record without re-check", withoutRecheck(), nil},
		{"settle without membership", nil, withoutMembership()},
		{"settle without the claim", nil, withoutClaim()},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newStress(t, test.claim, test.settle)
			var laws []string
			start := time.Now()
			s.run(rand.Uint64(), 20*time.Second, func() bool {
				laws = s.broken()
				return len(laws) > 0
			})
			if len(laws) == 0 {
				t.Errorf("laws broken: got none in %s, want some", time.Since(start))
			}
			t.Logf("after %s: %s; seen in two claims: %d", time.Since(start), strings.Join(laws, "; "), s.doubles.Load())
		})
	}
}
