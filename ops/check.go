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
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/overview"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Check returns what needs attention, the worst first:
//
//   - outdated tables
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
	if o.Outdated != nil {
		all = append(all, named("schema", []Finding{outdated(o.Outdated)})...)
	}
	c := causesOf(o)
	all = slices.Concat(
		all, named("circuit_breakers", c.circuits()), named("consumers", c.noProcess()), named("blocked_keys", c.blocked()),
		named("poisoned", c.poisoned()), named("processes", c.troubled(o.Processes)),
	)
	slices.SortStableFunc(all, worstFirst)
	return all
}

const curable = "Try again. If this persists, grant the database user the missing privilege, or check the load of the database."

// unseen is the finding for a part that could not be read.
func unseen(err error) Finding {
	return Finding{Severity: Warning, Text: "The check could not run.", Remedy: curable, cause: said(err)}
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
			Severity: found[mostFindings].Severity, Text: text, Remedy: "Fix these first and check again.",
		})
	}
	for i := range found {
		found[i].Check = check
	}
	return found
}

func worstFirst(a, b Finding) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) }

// isPlain reports whether a shell word may have the rune without quotes.
func isPlain(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-/:@", r)
}

// troubled finds processes that need attention. Consumers stopped by a circuit are in circuits.
func (c causes) troubled(fleet []admin.Process) (found []Finding) {
	told := func(circuit bus.OpenCircuit) bool {
		return slices.ContainsFunc(c.queues, func(q admin.Queue) bool {
			return q.Consumer == circuit.Consumer && slices.ContainsFunc(q.Stops, overview.IsCircuit)
		})
	}
	for _, runs := range overview.Programs(fleet, admin.ProcessLost) {
		found = append(found, c.lost(runs))
	}
	for _, p := range fleet {
		if p.Status != admin.ProcessAlive {
			continue
		}
		if len(p.Stuck) > 0 {
			found = append(found, critical(processName(p),
				fmt.Sprintf("Consumers ignore their timeout and still run: %s.", strings.Join(p.Stuck, ", ")),
				"Make them return when their context ends. Restart this process."))
		}
		for _, circuit := range slices.DeleteFunc(slices.Clone(p.OpenCircuits), told) {
			what := "Circuit open or broker down"
			if !circuit.Since.IsZero() {
				what += " for " + c.since(circuit.Since)
			}
			what = sentence(what+": "+circuit.Consumer, quoted(circuit.Reason))
			found = append(found, critical(processName(p), what, "Fix the dependency: processing then resumes."))
		}
	}
	return found
}

func processName(p admin.Process) string {
	return fmt.Sprintf("%s (pid %d on %s)", strings.TrimSpace(p.Program+" "+p.Version), p.PID, p.Host)
}

// checkProjections finds halted shards. Without an event log it finds none.
func (d *doctor) checkProjections(ctx context.Context, db bun.IDB) (found []Finding, err error) {
	states, err := d.service.projections.States(ctx, db)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	for _, s := range states {
		if s.Status == store.Halted {
			found = append(found, critical(s.Name, fmt.Sprintf("Version %d, shard %d halted at position %d.", s.Version, s.Shard, s.Position),
				"Read the error, fix the cause, and resume it."))
		}
	}
	return found, err
}
