package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Finding is one thing that [Session.Doctor] has found. It holds no content, and no text of an error that a
// message or a schedule has.
type Finding struct {
	Check    string   `json:"check"` // what was looked at
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject,omitempty"` // what it is about, such as the name of a consumer; empty where there is one only
	Text     string   `json:"text"`
	Remedy   string   `json:"remedy,omitempty"` // what to do; empty where nothing is wrong

	// cause is the database's own text, which may tell where that is, and as whom it is asked.
	cause string
}

// told is what the principal sees of findings: causes are for who may read texts of errors.
func (s *Session) told(found []Finding) []Finding {
	may := s.may(Read, "") == nil
	for i, f := range found {
		if f.cause != "" && may {
			found[i].Text = strings.TrimSuffix(f.Text, ".") + ": " + f.cause + "."
		}
		found[i].cause = ""
	}
	return found
}

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	// OK: nothing is wrong.
	OK Severity = "ok"
	// Warning: it may become a problem, or could not be looked at.
	Warning Severity = "warning"
	// Critical: messages are not done, a promise does not hold, or a page would not answer.
	Critical Severity = "critical"
)

// rank sorts the worst first.
func (s Severity) rank() int { return slices.Index([]Severity{Critical, Warning, OK}, s) }

// check looks at one thing. It returns nothing where nothing is wrong, and then fine is said; errAbsent
// where there is no such thing.
type check struct {
	name string
	fine string
	look func(d *Service, ctx context.Context, db bun.IDB) ([]Finding, error)
}

var errAbsent = errors.New("the database has no such thing") // immutable

// checks are all of them, in the order in which they are looked at and shown.
func checks() []check {
	var counted counts
	return []check{
		{"schema", "The tables are up to date.", (*Service).checkSchema},
		{"server", "The library is made for this server, and it is set as it must be.", (*Service).checkServer},
		{"safety", "What is committed survives a crash, as far as settings go.", (*Service).checkSafety},
		{"pool", "The pool has room for what runs in this process.", (*Service).checkPool},
		{"connections", "The server has connections left.", (*Service).checkConnections},
		{"indexes", "All indexes are there and valid.", (*Service).checkIndexes},
		{"dead_rows", "What was deleted is cleared.", (*Service).checkDeadRows},
		{"snapshots", "No transaction keeps what was deleted from being cleared.", (*Service).checkHolders},
		{"clock", "This machine's clock agrees with that of the database.", (*Service).checkClock},
		{"poisoned", "No message is poisoned.", counted.checkPoisoned},
		{"blocked_keys", "No key is blocked.", counted.checkBlocked},
		{"consumers", "Live processes take all messages that wait.", (*Service).checkStrangers},
		{"circuit_breakers", "No circuit breaker is open.", counted.checkBreakers},
		{"processes", "No process was lost within a day, is stuck, or stops a consumer.", counted.checkProcesses},
		{"schedules", "All schedules fire.", (*Service).checkSchedules},
		{"pauses", "No consumer is paused for long while messages wait.", (*Service).checkPauses},
		{"operations", "No operation is stuck.", (*Service).checkOperations},
		{"projections", "No projection has halted.", (*Service).checkProjections},
	}
}

// mostFindings is how many of one check are listed.
const mostFindings = 20

// Doctor looks for what is wrong with the database and with what runs on it, and says how to cure
// it: what [Session.Check] finds, and more. The worst comes first. A check that has found nothing
// wrong is listed, too, and of none more than 20 findings.
//
// Doctor changes nothing. It looks where messages are written, [Config].DB, and at each thing for
// three seconds at most. A part that cannot be read is a [Warning] that says so; the reason is for
// principals that may read texts of errors. An error means that the database does not answer at
// all, or [ErrForbidden], or that ctx is over.
func (s *Session) Doctor(ctx context.Context) ([]Finding, error) {
	if err := s.may(View, ""); err != nil {
		return nil, fmt.Errorf("ops: doctor: %w", err)
	}
	d := s.service
	if _, err := lookIn(ctx, d, d.config.DB, lookTime, d.store.Now); err != nil {
		return nil, fmt.Errorf("ops: doctor: the database does not answer: %w", err)
	}
	var all []Finding
	for _, c := range checks() {
		found, err := lookIn(ctx, d, d.config.DB, lookTime, func(ctx context.Context, db bun.IDB) ([]Finding, error) { return c.look(d, ctx, db) })
		if ctx.Err() != nil {
			return nil, fmt.Errorf("ops: doctor: %w", context.Cause(ctx))
		}
		switch behind := len(all) > 0 && all[0].Severity == Critical; { // the schema
		case errors.Is(err, errAbsent), isSchema(err) && behind: // which says it all
			continue
		case isSchema(err) && len(all) == 0:
			found = []Finding{{Severity: Critical, Text: fmt.Sprintf("The tables are not up to date: %s.", strings.TrimPrefix(err.Error(), outbox.ErrSchemaOutdated.Error()+": ")), Remedy: "Run asyncmonolith migrate, or outbox.Migrate. Migrations only add: what runs goes on running."}}
		case err != nil:
			found = []Finding{unseen(err)}
		case len(found) == 0:
			found = []Finding{{Severity: OK, Text: c.fine}}
		}
		all = append(all, named(c.name, found)...)
	}
	slices.SortStableFunc(all, worstFirst)
	return s.told(all), nil
}
