package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/overview"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Check returns what needs attention, the worst first:
//
//   - poisoned messages, blocked keys and open circuit breakers
//   - unhandled messages
//   - processes that were lost within a day, are stuck, or are stopped by a circuit
//   - halted projections
//   - operations that make no progress
//
// Each kind has at most 20 findings.
//
// Check reads a cached overview, so frequent calls are cheap.
// [Session.Doctor] finds the same and checks more. A part that cannot be read is a [Warning].
// Check returns an error only if no part can be read and there is no earlier overview.
func (s *Session) Check(ctx context.Context) ([]Finding, error) {
	o, err := s.overview(ctx)
	return o.Attention, err
}

// attention returns what needs attention: the findings made with the overview, and those derived
// from it.
func attention(o summary) []Finding {
	all := slices.Clone(o.Attention)
	for _, u := range o.Unseen {
		all = append(all, Finding{Check: "overview", Severity: Warning, Text: u.String(), Remedy: curable})
	}
	all = slices.Concat(
		all, named("poisoned", poisonedIn(o.Queues)), named("blocked_keys", blockedIn(o.Queues)),
		named("circuit_breakers", breakersIn(o.Queues)), named("consumers", unhandledFindings(o.Unhandled)),
		named("processes", troubled(o.Processes, o.Queues)),
	)
	slices.SortStableFunc(all, worstFirst)
	return all
}

const curable = "Look again. If it stays so, give this user of the database the right to look, or see what the database is busy with."

// unseen is the finding for a part that could not be read.
func unseen(err error) Finding {
	return Finding{Severity: Warning, Text: "It could not be looked at.", Remedy: curable, cause: said(err)}
}

// said returns an error's text for people. A driver's connection error may contain the database's
// address and user, which belong only in logs.
func said(err error) string {
	if dberr.IsUnavailable(err) {
		return "the database does not answer"
	}
	return err.Error()
}

// named sets the check of its findings and limits how many are listed.
func named(check string, found []Finding) []Finding {
	if len(found) > mostFindings {
		text := fmt.Sprintf("There are %d more like this.", len(found)-mostFindings)
		found = append(found[:mostFindings:mostFindings], Finding{
			Severity: found[mostFindings].Severity, Text: text, Remedy: "Cure these first, and look again.",
		})
	}
	for i := range found {
		found[i].Check = check
	}
	return found
}

func worstFirst(a, b Finding) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) }

func poisonedIn(queues []admin.Queue) (found []Finding) {
	for _, q := range queues {
		if q.Poisoned > 0 {
			found = append(found, critical(q.Consumer, fmt.Sprintf("It has poisoned messages: %s.", counted(q.Poisoned)), fmt.Sprintf(
				"See what they failed at: asyncmonolith poisoned groups --consumer %[1]s --show-payloads. Mend it, then: asyncmonolith "+
					"requeue --consumer %[1]s; or discard them.", word(q.Consumer))))
		}
	}
	return found
}

func blockedIn(queues []admin.Queue) (found []Finding) {
	for _, q := range queues {
		if q.BlockedKeys > 0 {
			found = append(found, critical(q.Consumer, fmt.Sprintf("Keys are blocked, and their messages wait: %s.", counted(q.BlockedKeys)),
				"See which, and by which poisoned message: asyncmonolith messages blocked-keys. Mend what that failed at, then: "+
					"asyncmonolith requeue ID; or discard it."))
		}
	}
	return found
}

// word quotes a name as one shell word.
func word(name string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-/:@", r)
	}
	if name != "" && strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0 {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// counted formats a count that is capped.
func counted(n int64) string {
	if n >= store.MostCounted {
		return fmt.Sprintf("%d or more", store.MostCounted)
	}
	return fmt.Sprint(n)
}

// breakersIn finds open circuit breakers. Names of the same consumer share one finding.
func breakersIn(queues []admin.Queue) (found []Finding) {
	told := make(map[admin.OpenBreaker]bool)
	for _, q := range queues {
		if q.Breaker == nil || told[*q.Breaker] {
			continue
		}
		told[*q.Breaker] = true
		text := q.Breaker.String()
		found = append(found, critical(q.Consumer, strings.ToUpper(text[:1])+text[1:]+".", fmt.Sprintf(
			"Mend what it depends on: it goes on by itself. To try one message now: asyncmonolith consumers probe %s.", word(q.Consumer))))
	}
	return found
}

// troubled finds processes that need attention. Consumers stopped by a circuit breaker are in
// breakersIn.
func troubled(fleet []admin.Process, queues []admin.Queue) (found []Finding) {
	breaks := func(name string) bool {
		return slices.ContainsFunc(queues, func(q admin.Queue) bool { return q.Consumer == name && q.Breaker != nil })
	}
	for _, runs := range overview.Programs(fleet, admin.ProcessLost) {
		found = append(found, lost(runs))
	}
	for _, p := range fleet {
		if p.Status != admin.ProcessAlive {
			continue
		}
		if len(p.Stuck) > 0 {
			found = append(found, critical(processName(p),
				fmt.Sprintf("Consumers ignore their timeout and still run: %s.", strings.Join(p.Stuck, ", ")),
				"Have them return when their context ends, and restart this process."))
		}
		if closed := slices.DeleteFunc(slices.Clone(p.OpenCircuits), breaks); len(closed) > 0 {
			found = append(found, critical(processName(p),
				fmt.Sprintf("A circuit is open here, or their broker is away: %s.", strings.Join(closed, ", ")),
				"Mend what they depend on: they go on by themselves."))
		}
	}
	return found
}

func processName(p admin.Process) string {
	return fmt.Sprintf("%s (pid %d on %s)", p.Program, p.PID, p.Host)
}

// checkProjections finds halted shards. Without an event log it finds none.
func (d *doctor) checkProjections(ctx context.Context, db bun.IDB) (found []Finding, err error) {
	states, err := d.service.projections.States(ctx, db)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	for _, s := range states {
		if s.Status == store.Halted {
			found = append(found, critical(s.Name, fmt.Sprintf("Version %d, shard %d, has halted at position %d.", s.Version, s.Shard, s.Position),
				"Read its error, mend what it failed at, and resume it."))
		}
	}
	return found, err
}
