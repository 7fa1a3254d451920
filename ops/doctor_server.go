package ops

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/overview"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Limits of the checks of the database itself.

const (
	nearlyUsed  = 0.9             // share of the server's connections
	manyDead    = 50_000          // dead rows of a table, if it has fewer live rows
	longHistory = 100_000         // transactions that MariaDB has not purged
	oldHolder   = 5 * time.Minute // age of a transaction
	farBehind   = 1_000_000       // transactions, if the age is unknown
	skewWarned  = time.Second     // of this machine's clock
	skewBroken  = time.Minute
	clockLooks  = 3
)

// checkSchema reports problems as an error, outbox.ErrSchemaOutdated, which ends the diagnosis.
func (d *doctor) checkSchema(ctx context.Context, db bun.IDB) ([]Finding, error) {
	return nil, d.service.store.Schema.CheckSchema(ctx, db)
}

// outdated is the finding of an outbox.ErrSchemaOutdated.
func outdated(err error) Finding {
	why := strings.TrimPrefix(err.Error(), outbox.ErrSchemaOutdated.Error()+": ")
	return critical("", fmt.Sprintf("The tables are not up to date: %s.", why),
		"Run the migrations. They only add, so running programs continue. On the command line: asyncmonolith migrate.")
}

func (d *doctor) checkServer(ctx context.Context, db bun.IDB) ([]Finding, error) {
	mistakes, err := d.service.store.Schema.Mistakes(ctx, db)
	return store.Each(mistakes, func(mistake error) Finding {
		return critical("", mistake.Error()+".", "Fix this for all connections and restart the programs. Until then no processor starts.")
	}), err
}

// diagnosed is the check of a part of the live database.
func (d *doctor) diagnosed(part store.Vital, find func(store.Diagnosis) []Finding) finder {
	return func(ctx context.Context, db bun.IDB) ([]Finding, error) {
		found, err := d.service.store.Schema.Diagnose(ctx, db, part)
		if err == nil && found.Absent {
			err = errAbsent
		}
		if err != nil {
			return nil, err
		}
		return find(found), nil
	}
}

func weaknesses(found store.Diagnosis) []Finding { return store.Each(found.Weaknesses, weakness) }

func weakness(w store.Weakness) Finding {
	f := warning(w.Name, fmt.Sprintf(
		"%s is %s: a crash can lose the last commits and their messages. Finished messages then run again.",
		w.Name, w.Value), fmt.Sprintf("Set %s to %s.", w.Name, w.Want))
	switch {
	case w.Damages:
		f.Severity, f.Text = Critical, fmt.Sprintf("%s is %s: a crash of the machine can damage the whole database.", w.Name, w.Value)
	case w.Idles:
		f.Severity, f.Text = Critical, fmt.Sprintf(
			"%s is %s: deleted rows are never removed, and every claim takes longer than the last.", w.Name, w.Value,
		)
	}
	return f
}

// checkPool adds up the connections that this process's Runs may hold at once. A Run that does not
// report them counts as one.
func (d *doctor) checkPool(ctx context.Context, db bun.IDB) ([]Finding, error) {
	fleet, err := d.service.admin.Processes(ctx, db, overview.LostWithin)
	if err != nil {
		return nil, err
	}
	need, runs := 0, 0
	for _, p := range fleet {
		if p.Status == admin.ProcessAlive && p.Instance == heartbeat.Instance {
			runs++
			need += max(p.Connections, 1)
		}
	}
	most := d.service.config.DB.Stats().MaxOpenConnections
	switch {
	case runs == 0:
		return fine("Nothing in this process needs connections."), nil
	case most > 0 && most < need:
		return []Finding{warning("", fmt.Sprintf(
			"The pool has %d connections, but %d runners of this process may need %d at once. They wait for each other, and leases may "+
				"expire.", most, runs, need),
			fmt.Sprintf("Raise SetMaxOpenConns to %d plus the application's own need, unless the runners use other pools.", need))}, nil
	}
	return nil, nil
}

func connections(found store.Diagnosis) []Finding {
	text := fmt.Sprintf("%d of the server's %d connections are used.", found.Used, found.Most)
	if found.Most > 0 && float64(found.Used) >= nearlyUsed*float64(found.Most) {
		return []Finding{critical("", text+" New programs may get none.",
			"Lower SetMaxOpenConns in programs with unused connections, add a pooler, or raise max_connections.")}
	}
	return fine(text)
}

func (d *doctor) checkIndexes(ctx context.Context, db bun.IDB) (found []Finding, err error) {
	lost, of, err := d.service.store.Schema.LostIndexes(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, index := range lost {
		text, remedy := "This index is missing.", "Create it: "
		if index.Invalid {
			text, remedy = "This index is invalid: its creation was interrupted.", "Drop it and create it again: "
		}
		found = append(found, critical(index.Name, text+" Queries read whole tables without it.",
			remedy+strings.Join(strings.Fields(index.Statement), " ")))
	}
	if len(found) == 0 {
		found = fine(fmt.Sprintf("All %d indexes exist and are valid.", of))
	}
	return found, nil
}

func deadRows(d store.Diagnosis) (found []Finding) {
	for _, t := range d.DeadRows {
		if t.Dead >= manyDead && t.Dead > t.Live {
			found = append(found, warning(t.Name,
				fmt.Sprintf("%d dead rows and %d live rows: every query of the table also reads the dead rows.", t.Dead, t.Live),
				"If the doctor lists an old transaction, end it. Then VACUUM the table. To run autovacuum more often, set "+
					"autovacuum_vacuum_scale_factor = 0.01 for this table."))
		}
	}
	if d.HistoryList >= longHistory {
		found = append(found, warning("",
			fmt.Sprintf("Old row versions of %d transactions are not purged: every query also reads them.", d.HistoryList),
			"If the doctor lists an old transaction, end it. Otherwise raise innodb_purge_threads."))
	}
	return found
}

func holders(d store.Diagnosis) (found []Finding) {
	for _, h := range d.Holders {
		if h.Age() < oldHolder && h.Behind < farBehind {
			continue
		}
		since := fmt.Sprintf("for %d transactions", h.Behind)
		if h.Age() > 0 {
			since = "for " + roughly(h.Age())
		}
		subject, remedy := h.Name, "Run COMMIT PREPARED or ROLLBACK PREPARED: the program that prepared it may have died."
		switch h.Kind {
		case store.OfPrepared:
		case store.OfSlot:
			remedy = "Start its standby again, or drop the slot if the standby was removed."
		default:
			subject = strings.TrimSpace(fmt.Sprintf("pid %d %s", h.PID, h.Name))
			remedy = "End the transaction or its session. Usual causes: work between statements, or a client that hangs."
		}
		found = append(found, warning(subject, fmt.Sprintf(
			"A %s has prevented the removal of deleted rows %s. Claims become slower the longer this lasts.", h.Kind, since), remedy))
	}
	return found
}

// checkClock uses the fastest of several answers, because the database read its clock at an
// unknown time during the call.
func (d *doctor) checkClock(ctx context.Context, db bun.IDB) ([]Finding, error) {
	var skew, within time.Duration
	for i := range clockLooks {
		asked := time.Now()
		now, err := d.service.store.Now(ctx, db)
		if err != nil {
			return nil, err
		}
		if half := time.Since(asked) / 2; i == 0 || half < within {
			skew, within = asked.Add(half).Sub(now), half
		}
	}
	return clock(skew, within), nil
}

func clock(skew, within time.Duration) []Finding {
	off := max(skew, -skew)
	f := Finding{Severity: Warning, Remedy: "Synchronize the clocks of both machines, for example with chrony."}
	switch surely := off - within; {
	case surely < skewWarned:
		return fine(fmt.Sprintf(
			"This machine's clock is within %s of the database's.", max(off+within, time.Millisecond).Round(time.Millisecond)))
	case surely >= skewBroken:
		f.Severity = Critical
	}
	side := "ahead of"
	if skew < 0 {
		side = "behind"
	}
	f.Text = fmt.Sprintf(
		"This machine's clock is %s %s the database's (±%s). The library uses the database's clock: times computed on this machine "+
			"are wrong by that much.",
		off.Round(time.Millisecond), side, max(within, time.Millisecond).Round(time.Millisecond),
	)
	return []Finding{f}
}

// roughly formats a duration for people.
func roughly(d time.Duration) string {
	for _, unit := range []struct {
		d    time.Duration
		name string
	}{{24 * time.Hour, "days"}, {time.Hour, "hours"}, {time.Minute, "minutes"}} {
		if d >= 2*unit.d {
			return fmt.Sprintf("%d %s", d/unit.d, unit.name)
		}
	}
	return cmp.Or(d.Round(time.Second), time.Second).String()
}
