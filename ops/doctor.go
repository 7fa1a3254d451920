package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Finding is one result of [Session.Doctor]. It holds no message content. Its Text has the
// beginning of an error text only if the principal may read it, through [Config].Redact.
type Finding struct {
	Check    string   `json:"check"` // name of the check
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject,omitempty"` // what it concerns, such as a consumer; empty if there is only one
	Text     string   `json:"text"`
	Remedy   string   `json:"remedy,omitempty"` // what to do; empty if nothing is wrong

	// cause is the database's error text, which may contain its address and user.
	cause string
}

// told redacts findings: only principals that may read error texts see causes.
func (s access) told(found []Finding) []Finding {
	may := s.may(Read, "") == nil
	for i, f := range found {
		if f.cause != "" && may {
			found[i].Text = strings.TrimSuffix(f.Text, ".") + ": " + f.cause + "."
		}
		found[i].cause = ""
	}
	return found
}

// Severity is how bad a finding is.
type Severity string

// The severities.
const (
	// OK means that nothing is wrong.
	OK Severity = "ok"
	// Warning means that it may become a problem, or could not be checked.
	Warning Severity = "warning"
	// Critical means that messages are not processed, a guarantee does not hold, or the database is at
	// risk: a missing index, no free connections, unsafe settings.
	Critical Severity = "critical"
)

func critical(subject, text, remedy string) Finding {
	return Finding{Severity: Critical, Subject: subject, Text: text, Remedy: remedy}
}

func warning(subject, text, remedy string) Finding {
	return Finding{Severity: Warning, Subject: subject, Text: text, Remedy: remedy}
}

func fine(text string) []Finding { return []Finding{{Severity: OK, Text: text}} }

// rank sorts the worst first.
func (s Severity) rank() int { return slices.Index([]Severity{Critical, Warning, OK}, s) }

// check is one check.
type check struct {
	name string
	fine string
	look finder
}

// finder returns no findings if nothing is wrong; then the check's fine is shown. It returns
// errAbsent if the database has no such thing.
type finder func(ctx context.Context, db bun.IDB) ([]Finding, error)

var errAbsent = errors.New("the database has no such thing") // immutable

// doctor is one diagnosis.
type doctor struct {
	service *Service
	session *Session // decides which error texts are shown
	seen    summary  // queues and failures, which several checks share
	failed  error    // why the queues could not be read
}

// checks are all checks, in the order in which they run and are shown.
func (d *doctor) checks() []check {
	return []check{
		{"schema", "The tables are up to date.", d.checkSchema},
		{"server", "The server and its settings are supported.", d.checkServer},
		{"safety", "With these settings, committed data survives a crash.", d.diagnosed(store.Weaknesses, weaknesses)},
		{"pool", "The pool is large enough for this process.", d.checkPool},
		{"connections", "The server has connections left.", d.diagnosed(store.Connections, connections)},
		{"indexes", "All indexes exist and are valid.", d.checkIndexes},
		{"dead_rows", "Deleted rows are removed.", d.diagnosed(store.DeadRows, deadRows)},
		{"snapshots", "No long transaction prevents the removal of deleted rows.", d.diagnosed(store.Holders, holders)},
		{"clock", "This machine's clock agrees with the database's.", d.checkClock},
		{"poisoned", "No message is poisoned.", d.inQueues(causes.poisoned)},
		{"blocked_keys", "No key is blocked.", d.inQueues(causes.blocked)},
		{"consumers", "Every pending message has a consumer in a live process.", d.checkUnhandled},
		{"circuit_breakers", "No circuit is open.", d.inQueues(causes.circuits)},
		{"processes", "No process was lost within a day or is stuck.", d.checkProcesses},
		{"schedules", "All schedules fire.", d.checkSchedules},
		{"pauses", "No consumer with messages has been paused for a day.", d.checkPauses},
		{"operations", "No operation is stuck.", d.checkOperations},
		{"projections", "No projection has halted.", d.checkProjections},
	}
}

// mostFindings limits the findings of one check.
const mostFindings = 20

// Doctor diagnoses the database and the processes that use it, and suggests remedies. It includes
// what [Session.Check] finds. The worst findings come first. A check that passes is listed as
// [OK]. Each check has at most 20 findings.
//
// Doctor changes nothing. It queries [Config].DB, for at most three seconds a check. It counts the
// queues first, for all checks; if that takes too long, it counts them one by one. A part that
// cannot be read is a [Warning]; only principals that may read error texts see the cause. Doctor
// returns an error if the database does not answer, if ctx is done, or [ErrForbidden].
func (s *Session) Doctor(ctx context.Context) ([]Finding, error) {
	if err := s.may(View, ""); err != nil {
		return nil, fmt.Errorf("ops: doctor: %w", err)
	}
	d := s.service
	if _, err := lookIn(ctx, d, d.config.DB, lookTime, d.store.Now); err != nil {
		return nil, fmt.Errorf("ops: doctor: the database does not answer: %w", err)
	}
	diagnosis := &doctor{service: d, session: s}
	diagnosis.readQueues(ctx)
	var all []Finding
	for _, c := range diagnosis.checks() {
		found, err := lookIn(ctx, d, d.config.DB, lookTime, c.look)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("ops: doctor: %w", context.Cause(ctx))
		}
		switch behind := len(all) > 0 && all[0].Severity == Critical; { // the schema check
		case errors.Is(err, errAbsent), isSchema(err) && behind: // which already explains it
			continue
		case isSchema(err) && len(all) == 0:
			found = []Finding{outdated(err)}
		case err != nil:
			found = []Finding{unseen(err)}
		case len(found) == 0:
			found = fine(c.fine)
		}
		all = append(all, named(c.name, found)...)
	}
	slices.SortStableFunc(all, worstFirst)
	return s.told(all), nil
}
