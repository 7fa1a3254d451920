//go:build unix

package chaos_test

import (
	"errors"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// keepHistory has the database note what committed statements do to claims and to
// messages: which worker is behind an owner, since a worker connects under its own
// name; what every message is; and every change, in the order of the statements'
// ends. What is rolled back leaves nothing.
const keepHistory = `
CREATE TABLE owners (owner text PRIMARY KEY, worker text NOT NULL);
CREATE TABLE births (id bigint NOT NULL, consumer text NOT NULL, job int NOT NULL);
CREATE TABLE history (seq bigserial, at timestamptz NOT NULL DEFAULT clock_timestamp(), tx text NOT NULL DEFAULT pg_current_xact_id()::text,
  session text NOT NULL DEFAULT current_setting('application_name'), kind text NOT NULL, claim bigint, until timestamptz, messages bigint[] NOT NULL);

CREATE FUNCTION note_claimed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO owners SELECT DISTINCT owner, current_setting('application_name') FROM present ON CONFLICT DO NOTHING;
  INSERT INTO history (kind, claim, until, messages) SELECT 'claimed', id, leased_until, message_ids FROM present; RETURN NULL; END $$;
CREATE TRIGGER note_claimed AFTER INSERT ON message_claims REFERENCING NEW TABLE AS present
  FOR EACH STATEMENT EXECUTE FUNCTION note_claimed();
CREATE FUNCTION note_kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO history (kind, claim, until, messages) SELECT 'kept', id, leased_until, message_ids FROM present; RETURN NULL; END $$;
CREATE TRIGGER note_kept AFTER UPDATE ON message_claims REFERENCING NEW TABLE AS present
  FOR EACH STATEMENT EXECUTE FUNCTION note_kept();
CREATE FUNCTION note_ended() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO history (kind, claim, until, messages) SELECT 'ended', id, leased_until, message_ids FROM past; RETURN NULL; END $$;
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
		At       time.Time
		Tx       string
		Session  string
		Kind     string
		Claim    int64
		Until    time.Time
		Messages []int64 `bun:",array"`
	}
	var births []struct {
		ID       int64
		Consumer string
		Job      int
	}
	err := errors.Join(
		r.db.NewRaw("SELECT at, tx, session, kind, COALESCE(claim, 0) AS claim, COALESCE(until, at) AS until, messages FROM history ORDER BY seq").Scan(r.ctx, &rows),
		r.db.NewRaw("SELECT id, consumer, job FROM births").Scan(r.ctx, &births))
	if err != nil {
		r.Fatalf("history: %v", err)
	}
	for _, row := range rows {
		changes = append(changes, chaos.Change{
			At: row.At, Tx: row.Tx, Session: row.Session, Kind: chaos.ChangeKind(row.Kind), Claim: row.Claim, Until: row.Until, Messages: row.Messages,
		})
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
	return r.count("SELECT count(*) FROM history WHERE at BETWEEN ? AND ?", from, to)
}

// claimedSince is when workers first claimed each run after an instant. It returns
// nothing while the database does not answer.
func (r *run) claimedSince(since time.Time) map[claimedRun]time.Time {
	var rows []struct {
		Session  string
		Consumer string
		Job      int
		At       time.Time
	}
	err := r.db.NewRaw("SELECT h.session, b.consumer, b.job, min(h.at) AS at FROM history h CROSS JOIN LATERAL unnest(h.messages) m(id)"+
		" JOIN births b ON b.id = m.id WHERE h.kind = 'claimed' AND h.at > ? GROUP BY 1, 2, 3", since).Scan(r.ctx, &rows)
	if err != nil {
		return nil
	}
	claimed := make(map[claimedRun]time.Time, len(rows))
	for _, row := range rows {
		claimed[claimedRun{chaos.Run{Consumer: row.Consumer, Job: row.Job}, row.Session}] = row.At
	}
	return claimed
}

// claimedRun is a run that a worker has claimed.
type claimedRun struct {
	chaos.Run
	worker string
}

// outlived looks for runs that went on after their lease. It returns how many runs of
// the workers were under way at an instant, and of all runs those that
// went on after their lease; left is how long before its lease's end the latest of
// those that were under way ended.
func (r *run) outlived(at time.Time, workers ...*chaos.Worker) (underWay int, left time.Duration) {
	r.Helper()
	terms, err := r.evidence().Terms()
	if err != nil {
		r.Error(err)
	}
	names := make(map[string]bool)
	for _, w := range workers {
		names[w.Name()] = true
	}
	var late []chaos.Term
	left = time.Hour
	for _, term := range terms {
		if term.Left() < 0 {
			late = append(late, term)
		}
		if names[term.Worker] && term.Began.Before(at) && term.End.After(at) {
			underWay++
			left = min(left, term.Left())
		}
	}
	if len(late) > 0 {
		r.Errorf("consumers that outlived their lease: got %d of %d, such as %+v, want none", len(late), len(terms), late[0])
	}
	if underWay == 0 {
		r.Errorf("consumers under way at %s: got none, want some", at.Format(time.TimeOnly))
	}
	return underWay, left
}
