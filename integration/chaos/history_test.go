//go:build unix

package chaos_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// keepHistory has the database note what committed statements do to claims and to
// messages: which worker is behind an owner, since a worker connects under its own
// name; what every message is; and every change, in the order of the statements'
// ends. What is rolled back leaves nothing.
const keepHistory = `
CREATE TABLE effects (consumer text NOT NULL, job bigint NOT NULL, tx xid8 NOT NULL DEFAULT pg_current_xact_id(), at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE owners (owner text PRIMARY KEY, worker text NOT NULL);
CREATE TABLE births (id bigint NOT NULL, consumer text NOT NULL, job int NOT NULL);
CREATE TABLE history (seq bigserial, at bigint NOT NULL DEFAULT extract(epoch FROM clock_timestamp()) * 1000000, tx text NOT NULL DEFAULT pg_current_xact_id()::text,
  session text NOT NULL DEFAULT current_setting('application_name'), kind text NOT NULL, claim bigint NOT NULL DEFAULT 0, until bigint NOT NULL DEFAULT 0, messages bigint[] NOT NULL);

CREATE FUNCTION note_claimed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO owners SELECT DISTINCT owner, current_setting('application_name') FROM present ON CONFLICT DO NOTHING;
  INSERT INTO history (kind, claim, until, messages) SELECT 'claimed', id, extract(epoch FROM leased_until) * 1000000, message_ids FROM present; RETURN NULL; END $$;
CREATE TRIGGER note_claimed AFTER INSERT ON message_claims REFERENCING NEW TABLE AS present
  FOR EACH STATEMENT EXECUTE FUNCTION note_claimed();
CREATE FUNCTION note_kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO history (kind, claim, until, messages) SELECT 'kept', id, extract(epoch FROM leased_until) * 1000000, message_ids FROM present; RETURN NULL; END $$;
CREATE TRIGGER note_kept AFTER UPDATE ON message_claims REFERENCING NEW TABLE AS present
  FOR EACH STATEMENT EXECUTE FUNCTION note_kept();
CREATE FUNCTION note_ended() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO history (kind, claim, until, messages) SELECT 'ended', id, extract(epoch FROM leased_until) * 1000000, message_ids FROM past; RETURN NULL; END $$;
CREATE TRIGGER note_ended AFTER DELETE ON message_claims REFERENCING OLD TABLE AS past
  FOR EACH STATEMENT EXECUTE FUNCTION note_ended();

CREATE FUNCTION note_births() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO births SELECT id, consumer_type, (payload::json->>'n')::int FROM present; RETURN NULL; END $$;
CREATE TRIGGER note_births AFTER INSERT ON consumer_messages REFERENCING NEW TABLE AS present
  FOR EACH STATEMENT EXECUTE FUNCTION note_births();
CREATE FUNCTION note_written() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO history (kind, messages) SELECT 'written', array_agg(id) FROM past JOIN present USING (id)
    WHERE (past.attempts, past.crashes, past.available_after) IS DISTINCT FROM (present.attempts, present.crashes, present.available_after)
    HAVING count(*) > 0; RETURN NULL; END $$;
CREATE TRIGGER note_written AFTER UPDATE ON consumer_messages REFERENCING OLD TABLE AS past NEW TABLE AS present
  FOR EACH STATEMENT EXECUTE FUNCTION note_written();
CREATE FUNCTION note_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO history (kind, messages) SELECT 'written', array_agg(id) FROM past HAVING count(*) > 0; RETURN NULL; END $$;
CREATE TRIGGER note_removed AFTER DELETE ON consumer_messages REFERENCING OLD TABLE AS past
  FOR EACH STATEMENT EXECUTE FUNCTION note_removed();`

// history is what was done to claims and messages, and the messages it speaks of.
func (r *run) history() (changes []chaos.Change, messages map[int64]chaos.Run) {
	r.Helper()
	var rows []struct {
		At       int64
		Tx       string
		Session  string
		Kind     string
		Claim    int64
		Until    int64
		Messages string
	}
	var births []struct {
		ID       int64
		Consumer string
		Job      int
	}
	err := errors.Join(
		r.db.NewRaw("SELECT at, tx, session, kind, claim, until, "+of(r.bar, "array_to_json(messages)::text AS messages",
			"messages")+" FROM history ORDER BY seq").Scan(r.ctx, &rows),
		r.db.NewRaw("SELECT id, consumer, job FROM births").Scan(r.ctx, &births))
	for _, row := range rows {
		var ids []int64
		err = errors.Join(err, json.Unmarshal([]byte(row.Messages), &ids))
		changes = append(changes, chaos.Change{
			At: time.UnixMicro(row.At), Tx: row.Tx, Session: row.Session, Kind: chaos.ChangeKind(row.Kind), Claim: row.Claim,
			Until: time.UnixMicro(row.Until), Messages: ids,
		})
	}
	if err != nil {
		r.Fatalf("history: %v", err)
	}
	messages = make(map[int64]chaos.Run, len(births))
	for _, birth := range births {
		messages[birth.ID] = chaos.Run{Consumer: birth.Consumer, Job: birth.Job}
	}
	return changes, messages
}

// changes tells how many changes there were in a span of time.
func (r *run) changes(from, to time.Time) int {
	r.Helper()
	return r.count("SELECT count(*) FROM history WHERE at BETWEEN ? AND ?", from.UnixMicro(), to.UnixMicro())
}

// claimedSince is when workers first claimed each run after an instant. It returns
// nothing while the database does not answer.
func (r *run) claimedSince(since time.Time) map[chaos.RunBy]time.Time {
	var rows []struct {
		Session  string
		Consumer string
		Job      int
		At       int64
	}
	ids := of(r.bar, "LATERAL unnest(h.messages) m(id)", "JSON_TABLE(h.messages, '$[*]' COLUMNS (id BIGINT PATH '$')) m")
	err := r.db.NewRaw("SELECT h.session, b.consumer, b.job, min(h.at) AS at FROM history h CROSS JOIN "+ids+
		" JOIN births b ON b.id = m.id WHERE h.kind = 'claimed' AND h.at > ? GROUP BY 1, 2, 3", since.UnixMicro()).Scan(r.ctx, &rows)
	if err != nil {
		return nil
	}
	claimed := make(map[chaos.RunBy]time.Time, len(rows))
	for _, row := range rows {
		claimed[chaos.RunBy{Run: chaos.Run{Consumer: row.Consumer, Job: row.Job}, Worker: row.Session}] = time.UnixMicro(row.At)
	}
	return claimed
}

// keptLeases checks that no run of a consumer went on after its lease, and returns all
// that reported an end.
func (r *run) keptLeases() []chaos.Term {
	r.Helper()
	terms, err := r.evidence().Terms()
	if err != nil {
		r.Error(err)
	}
	var late []chaos.Term
	for _, term := range terms {
		if term.Left() < 0 {
			late = append(late, term)
		}
	}
	if len(late) > 0 {
		r.Errorf("consumers that outlived their lease: got %d of %d, such as %+v, want none", len(late), len(terms), late[0])
	}
	return terms
}

// underWay tells how many runs of the workers were under way at an instant, which must
// be some, and how much of its lease was left to the one that ended closest to it.
func (r *run) underWay(terms []chaos.Term, at time.Time, workers ...*chaos.Worker) (n int, left time.Duration) {
	r.Helper()
	left = time.Hour
	for _, term := range terms {
		is := func(w *chaos.Worker) bool { return w.Name() == term.Worker }
		if slices.ContainsFunc(workers, is) && term.Began.Before(at) && term.End.After(at) {
			n++
			left = min(left, term.Left())
		}
	}
	if n == 0 {
		r.Errorf("consumers under way at %s: got none, want some", at.Format(time.TimeOnly))
	}
	return n, left
}

// The database notes who does what to claims, and the judge makes of it what it is.
func TestHistoryTellsWhatWasDoneToClaims(t *testing.T) {
	t.Parallel()
	r := newRun(&bar{T: t}, testdb.PostgresDSN(t), chaos.WorkerConfig{Plain: []string{"one"}})
	other := testdb.OpenPostgres(t, r.dsn+"&application_name=other")
	s := testapp.Must[*store.Store](t)(store.For(dialect.PG, bus.Tables{}))
	jobs := r.plant(make([]chaos.Job, 4)...)
	claim, err := s.Claims.Claim(r.ctx, r.db, store.ClaimRequest{
		Owner: "a", Lease: time.Hour, Wants: []store.Want{{Consumer: "one", Payload: chaos.Job{}.PayloadType(),
			Limit: 4}}, Limit: 4, MaxBytes: 1 << 20,
	})
	if err != nil || len(claim.Messages) != 4 {
		t.Fatalf("claim: got %d messages and error %v, want 4", len(claim.Messages), err)
	}
	results := []store.Result{
		{Claim: claim.ID, Message: claim.Messages[0].ID, Outcome: store.Done},
		{Claim: claim.ID, Message: claim.Messages[1].ID, Outcome: store.Failed},
	}
	if settled, err := s.Claims.Settle(r.ctx, r.db, "a", time.Hour, results); err != nil || settled.Applied != 2 {
		t.Fatalf("settle: got %+v and error %v, want 2 applied", settled, err)
	}
	testapp.OK(t, testapp.Second(s.Claims.Extend(r.ctx, r.db, "a", time.Hour)))
	if f := chaos.Judge(r.evidence()); len(f.Twice)+len(f.Taken)+len(f.Stale) > 0 {
		t.Errorf("what an owner may do: got %v, want no violation", f)
	}
	for _, theft := range []string{
		"DELETE FROM consumer_messages WHERE id = %d",
		"INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids) VALUES ('b', false, now(), now(), ARRAY[%d::bigint])",
	} {
		testapp.OK(t, testapp.Second(other.ExecContext(r.ctx, fmt.Sprintf(theft, claim.Messages[2].ID))))
	}
	testapp.OK(t, testapp.Second(other.ExecContext(r.ctx, "DELETE FROM message_claims WHERE owner = 'a'")))
	run := func(i int) chaos.Run { return chaos.Run{Consumer: "one", Job: jobs[i]} }
	f := chaos.Judge(r.evidence())
	if !slices.Equal(f.Stale, []chaos.Run{run(2)}) || !slices.Equal(f.Twice, []chaos.Run{run(2)}) ||
		!slices.Equal(f.Taken, []chaos.Run{run(2), run(3)}) {
		t.Errorf("what another did: got settled without a claim %v, twice %v and taken %v, want %v, the same, and %v too", f.Stale,
			f.Twice, f.Taken, run(2), run(3))
	}
}
