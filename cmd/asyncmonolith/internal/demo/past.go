package demo

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// This file has the only SQL of the command. It writes a past without the wait for it, and processes
// that never were, into the tables of a demo database, which is SQLite's: the library itself has no way
// to write what has not happened.

// markAt is where SQLite keeps the mark of an application in its files, in four bytes.
const markAt = 68

func marked() string { return "AMdm" }

// mark marks the file as a demo database, of which only another takes the place.
func (d *Demo) mark(ctx context.Context) error {
	b := marked()
	_, err := d.db.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", int32(b[0])<<24|int32(b[1])<<16|int32(b[2])<<8|int32(b[3])))
	return err
}

const (
	deployed = 23 * time.Minute     // ago, the new version
	keeps    = 20 * time.Minute     // between two reports of a process that is only shown
	shown    = 45 * time.Minute     // for which claims are held without work on them
	lostAgo  = 4 * time.Minute      // one process was lost
	lost     = "demo-lost-worker-4" // its id
	micros   = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
)

// write runs a statement.
func (d *Demo) write(ctx context.Context, what, statement string, args ...any) error {
	if _, err := d.db.NewRaw(strings.ReplaceAll(statement, "{now}", micros), args...).Exec(ctx); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}

func (d *Demo) processes(ctx context.Context) ([]admin.Process, error) {
	return d.session(ada).Processes(ctx, time.Hour)
}

func (d *Demo) failures(ctx context.Context) ([]admin.FailureGroup, error) {
	return d.session(ada).Consumers().Failures(ctx, "", 100)
}

// dressUp has what runs in this process look like a program on several machines, of two versions.
func (d *Demo) dressUp(ctx context.Context) error {
	processes, err := insist(ctx, d.processes)
	if err != nil {
		return err
	}
	n := 0
	for _, p := range processes {
		host, version, age := "worker-1", newVersion, deployed
		if p.Kind == "processor" {
			n++
			host = fmt.Sprint("worker-", n)
			if n == workers {
				version, age = oldVersion, 6*24*time.Hour
			}
		}
		if err := d.write(ctx, "process", "UPDATE message_processes SET program = 'shop', host = ?, pid = ?, version = ?, started_at = "+
			"{now} - ? WHERE id = ?",
			host, 4100+17*int(host[len(host)-1]-'0'), version, age.Microseconds(), p.ID); err != nil {
			return err
		}
	}
	return d.dressFailures(ctx)
}

// dressFailures tells since when and which version failures are known.
func (d *Demo) dressFailures(ctx context.Context) error {
	failures, err := insist(ctx, d.failures)
	if err != nil {
		return err
	}
	for i, f := range failures {
		version, age := "v1.6.4", time.Duration(9+5*i)*24*time.Hour
		switch {
		case f.Consumer == charges && strings.Contains(f.Sample, "amount"):
			version, age = newVersion, deployed-40*time.Second
		case f.Consumer == receipts && strings.Contains(f.Sample, "dial"), f.Consumer == searching:
			version, age = oldVersion, 52*time.Minute
		}
		if err := d.write(ctx, "failure", "UPDATE message_failures SET first_version = ?, first_at = {now} - ? WHERE consumer_type = ? "+
			"AND fingerprint = ?",
			version, age.Microseconds(), f.Consumer, f.Fingerprint); err != nil {
			return err
		}
	}
	return nil
}

// remember writes the past two days.
func (d *Demo) remember(ctx context.Context, live bool) error {
	if err := d.write(ctx, "poisoned messages", "UPDATE poisoned_messages SET poisoned_at = poisoned_at - ((SELECT max(id) FROM "+
		"poisoned_messages) - id) * 4000000, created_at = created_at - ((SELECT max(id) FROM poisoned_messages) - id) * 4000000"); err != nil {
		return err
	}
	// What fails since the deploy has failed since the deploy.
	if err := d.write(ctx, "poisoned messages of the deploy", `UPDATE poisoned_messages SET poisoned_at = {now} - n.newer * 14000000, created_at = {now} - n.newer * 14000000 - 2000000
FROM (SELECT p.id, count(*) OVER (PARTITION BY p.fingerprint ORDER BY p.id DESC) AS newer FROM poisoned_messages p JOIN message_failures f ON f.consumer_type = p.consumer_type AND f.fingerprint = p.fingerprint
	WHERE f.first_version = ?) n WHERE n.id = poisoned_messages.id`, newVersion); err != nil {
		return err
	}
	// The last of their runs was what poisoned them, and those before it came a second apart.
	if err := d.write(ctx, "failed runs", `UPDATE poisoned_messages SET created_at = created_at - json_array_length(errors) * 1000000, available_after = poisoned_at - 200000,
errors = (SELECT json_group_array(json_set(e.value, '$.at', strftime('%Y-%m-%dT%H:%M:%fZ', (poisoned_at - (json_array_length(errors) - 1 - e.key) * 1000000) / 1e6, 'unixepoch'))) FROM json_each(errors) e)`); err != nil {
		return err
	}
	if err := d.write(ctx, "failures of the deploy", "UPDATE message_failures SET last_at = {now} WHERE first_version = "+
		"?", newVersion); err != nil {
		return err
	}
	if err := d.write(ctx, "waiting messages", "UPDATE consumer_messages SET created_at = created_at - 2400000000, available_after = "+
		"available_after - ((SELECT max(id) FROM consumer_messages) - id) * 6000000 WHERE consumer_type IN (?, "+
		"?)", catalogue, faxes); err != nil {
		return err
	}
	if err := d.minutes(ctx); err != nil {
		return err
	}
	if err := d.lose(ctx, live); err != nil || live {
		return err
	}
	return d.keep(ctx)
}

// lose writes a process that was lost with a message, which is a suspect since.
func (d *Demo) lose(ctx context.Context, live bool) error {
	due := int64(0)
	if live { // else it would run at once, and be a suspect no more
		due = time.Hour.Microseconds()
	}
	ago := lostAgo.Microseconds()
	for _, s := range []struct {
		what, statement string
		args            []any
	}{
		{"lost process", `INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state)
SELECT ?, kind, 'worker-4', 4168, 'shop', ?, {now} - ?, {now} - ?, manifest, '{"every": 15000000000, "running": 3, "limit": 8}' FROM message_processes WHERE kind = 'processor' LIMIT 1`,
			[]any{lost, newVersion, deployed.Microseconds(), ago}},
		{"suspect", `UPDATE consumer_messages SET crashes = 1, available_after = {now} + ?, created_at = created_at - ? WHERE id = (SELECT max(id) FROM consumer_messages WHERE consumer_type = ? AND crashes = 0)`,
			[]any{due, ago, invoices}},
		{"crash", `INSERT INTO message_crashes (row_id, consumer_type, owner, solo, crashed_at) SELECT id, consumer_type, ?, 0, {now} - ? FROM consumer_messages WHERE crashes > 0`,
			[]any{lost, ago - 30*time.Second.Microseconds()}},
	} {
		if err := d.write(ctx, s.what, s.statement, s.args...); err != nil {
			return err
		}
	}
	return nil
}

// keep has the processes that have run look alive for a while, and hold a few messages. That which carried out
// operations does not: what is started would wait for it, and the command would not say how it is carried out. What it was
// at stands still, for so long that this is found at once.
func (d *Demo) keep(ctx context.Context) error {
	if err := d.write(ctx, "operation", "UPDATE message_operations SET created_at = created_at - ?0, starts_at = starts_at - ?0, "+
		"leased_by = NULL, leased_until = NULL WHERE state = 'running'", lostAgo.Microseconds()); err != nil {
		return err
	}
	processes, err := insist(ctx, d.processes)
	if err != nil {
		return err
	}
	for i, p := range processes {
		if p.ID == lost || p.Kind == "operations" {
			continue
		}
		state := fmt.Sprintf(`{"every": %d}`, keeps)
		if p.Kind == "processor" {
			state = fmt.Sprintf(`{"every": %d, "running": 2, "queued": %d, "limit": 8}`, keeps, i)
			if err := d.write(ctx, "claim", `INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids)
SELECT ?, 0, {now}, {now} + ?, json_group_array(id) FROM (SELECT id FROM consumer_messages WHERE consumer_type IN (?, ?) AND crashes = 0 AND id NOT IN (SELECT value FROM message_claims, json_each(message_ids)) ORDER BY id LIMIT 2)
HAVING count(*) > 0`,
				p.ID, shown.Microseconds(), invoices, webhooks); err != nil {
				return err
			}
		}
		if err := d.write(ctx, "process", "UPDATE message_processes SET stopped_at = NULL, seen_at = {now}, state = ? WHERE id = "+
			"?", state, p.ID); err != nil {
			return err
		}
	}
	return nil
}

const (
	remembered = 47 * 60 // minutes: for an hour less than they are kept
	recently   = 60      // of which each has a row
	together   = 10      // minutes of which one has the row, before that
)

// minutes writes what became of messages in the two days before, with nights, and the deploy at the end.
func (d *Demo) minutes(ctx context.Context) error {
	type load struct {
		consumer string
		rate     float64 // messages in a minute
		run, lag int     // where most of its runs are, among a histogram's parts
	}
	at := time.Now().UTC().Truncate(time.Minute)
	for _, l := range []load{{receipts, 240, 4, 2}, {webhooks, 240, 6, 3}, {invoices, 60, 8, 4}, {charges, 180, 5, 2}, {searching,
		900, 1, 1}, {parcels, 120, 6, 3}} {
		for ago, step := 1, 1; ago < remembered; ago += step {
			if ago >= recently {
				step = together
			}
			then := at.Add(-time.Duration(ago) * time.Minute)
			m, lag := operator.MinuteStats{Done: int64(l.rate * wave(ago) * daylight(then) * float64(step))}, l.lag
			if daylight(then) > 1.2 { // when most is to do, it waits for longer
				lag++
			}
			sinceDeploy := deployed - time.Duration(ago)*time.Minute
			switch {
			case sinceDeploy > 0 && l.consumer == charges:
				m.Poisoned, m.Done = m.Done/9, m.Done-m.Done/9
			case ago > 30 && ago < 52 && l.consumer == receipts:
				m.Retried, m.Poisoned, m.Done = m.Done/6, m.Done/70, m.Done-m.Done/6
			case l.consumer == webhooks:
				m.Retried = m.Done / 40
			}
			if err := d.minute(ctx, l.consumer, then, m, l.run, lag); err != nil {
				return err
			}
		}
	}
	return nil
}

// wave has no minute be like the one before.
func wave(ago int) float64 {
	return 1 + 0.25*math.Sin(float64(ago)/7) + 0.08*math.Cos(float64(ago*ago))
}

// daylight is how busy the shop is at an hour, of the average: customers sleep, and buy most in the evening.
func daylight(at time.Time) float64 {
	hours := float64(at.Hour()) + float64(at.Minute())/60
	return 1 - 0.55*math.Cos((hours-4)/24*2*math.Pi)
}

// minute writes one of them, with its runs spread around a part of the histograms.
func (d *Demo) minute(ctx context.Context, consumer string, at time.Time, m operator.MinuteStats, run, lag int) error {
	runs := m.Done + m.Retried + m.Poisoned
	columns := []string{"consumer_type", "minute", "done", "retried", "poisoned"}
	args := []any{consumer, at.UnixMicro(), m.Done, m.Retried, m.Poisoned}
	spread := func(name string, most int) {
		var h operator.Histogram
		left := runs
		for i, part := range []int64{2, 5, 2} {
			h[max(most+i-1, 0)] += runs * part / 10
			left -= runs * part / 10
		}
		h[most+2] = left
		for i, n := range h {
			columns, args = append(columns, fmt.Sprint(name, i)), append(args, n)
		}
	}
	spread("run_", run)
	spread("lag_", lag)
	return d.write(
		ctx,
		"minutes",
		"INSERT INTO message_minutes ("+strings.Join(
			columns, ", ",
		)+") VALUES (?"+strings.Repeat(
			", ?",
			len(columns)-1,
		)+") ON CONFLICT DO NOTHING",
		args...)
}
