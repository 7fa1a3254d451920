package top

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// countAll is a number without a bound.
func countAll(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// failures are the kinds that came last, and all that is known of the chosen one.
func (m *model) failures(room int) []string {
	found := m.overview.Failures
	if len(found) == 0 {
		return []string{"Nothing has failed."}
	}
	var consumer, runs, last, first, version, text column
	consumer, runs, last = column{title: "CONSUMER", most: max(m.width/3, 12)}, column{title: "RUNS", right: true}, column{title: "LAST", right: true}
	first, version, text = column{title: "FIRST", right: true, drop: 2}, column{title: "SINCE", drop: 3}, column{title: "ERROR", most: -1}
	for _, f := range found {
		consumer.cells = append(consumer.cells, f.Consumer)
		runs.cells = append(runs.cells, countAll(f.Runs))
		last.cells = append(last.cells, age(m.since(f.LastAt)))
		first.cells = append(first.cells, age(m.since(f.FirstAt)))
		version.cells = append(version.cells, f.FirstVersion)
		text.cells = append(text.cells, f.Sample)
	}
	last.style = func(line int) string {
		if m.since(found[line].LastAt) <= failsNow {
			return red
		}
		return ""
	}
	chosen := m.line[failures]
	detail := m.detail(found[chosen])
	tableRoom := max(min(len(found), room-2-len(detail)), min(3, room-1), 1)
	lines := table{columns: columnsOf(consumer, runs, last, first, version, text)}.lines(m.width, scroll(chosen, tableRoom), tableRoom, chosen)
	return append(append(lines, ""), detail...)
}

// detail is the whole text of a failure.
func (m *model) detail(f admin.FailureGroup) []string {
	lines := []string{styled(bold, fit(f.ErrorType, m.width))}
	for line := range strings.SplitSeq(ansi.Wrap(show.Text(f.Sample), max(m.width-2, 1), ""), "\n") {
		lines = append(lines, "  "+line)
	}
	return append(lines[:min(len(lines), 8)], styled(dim, fit(fmt.Sprintf("fingerprint %s · last message %d", f.Fingerprint, f.LastID), m.width)))
}

// fleet is processes, and operations that are not over.
func (m *model) fleet(room int) []string {
	processes, operations := m.overview.Processes, m.overview.Operations
	chosen := m.line[fleet]
	var lines []string
	foot := 0
	if len(operations) > 0 {
		foot = min(len(operations), max(room/3, 3)) + 2
	}
	if len(processes) == 0 {
		lines = append(lines, "No process has told of itself.")
	} else {
		tableRoom := max(min(len(processes), room-1-foot), 1)
		lines = append(lines, m.processTable().lines(m.width, scroll(min(chosen, len(processes)-1), tableRoom), tableRoom, chosen)...)
	}
	if len(operations) == 0 {
		return lines
	}
	inOperations := max(chosen-len(processes), -1)
	lines = append(lines, "")
	return append(lines, m.operationTable().lines(m.width, scroll(max(inOperations, 0), foot-2), foot-2, inOperations)...)
}

func (m *model) processTable() table {
	processes := m.overview.Processes
	column := func(title string, drop int, right bool, cell func(p admin.Process) string) column {
		c := column{title: title, right: right, drop: drop}
		for _, p := range processes {
			c.cells = append(c.cells, cell(p))
		}
		return c
	}
	status := column("STATUS", 0, false, func(p admin.Process) string { return string(p.Status) })
	status.style = func(line int) string {
		if processes[line].Status == admin.ProcessLost {
			return yellow
		}
		return ""
	}
	numbers := func(p admin.Process, n int) string {
		if p.Status != admin.ProcessAlive || p.Limit == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	note := column("", 0, false, func(p admin.Process) string {
		var notes []string
		if len(p.Stuck) > 0 {
			notes = append(notes, "stuck: "+strings.Join(p.Stuck, ", "))
		}
		if len(p.OpenCircuits) > 0 {
			notes = append(notes, "closed: "+strings.Join(p.OpenCircuits, ", "))
		}
		return strings.Join(notes, "; ")
	})
	note.most = -1
	return table{columns: columnsOf(status,
		column("PROGRAM", 2, false, func(p admin.Process) string { return p.Program }),
		column("VERSION", 0, false, func(p admin.Process) string { return p.Version }),
		column("HOST", 0, false, func(p admin.Process) string { return p.Host }),
		column("PID", 5, true, func(p admin.Process) string { return fmt.Sprint(p.PID) }),
		column("KIND", 3, false, func(p admin.Process) string { return p.Kind }),
		column("RUNNING", 1, true, func(p admin.Process) string { return numbers(p, p.Running) }),
		column("QUEUED", 6, true, func(p admin.Process) string { return numbers(p, p.Queued) }),
		column("LIMIT", 7, true, func(p admin.Process) string { return numbers(p, p.Limit) }),
		column("UP", 4, true, func(p admin.Process) string { return age(p.SeenAt.Sub(p.StartedAt)) }),
		column("SEEN", 0, true, func(p admin.Process) string { return age(m.since(p.SeenAt)) }),
		note)}
}

func (m *model) operationTable() table {
	operations := m.overview.Operations
	column := func(title string, drop int, right bool, cell func(o ops.Operation) string) column {
		c := column{title: title, right: right, drop: drop}
		for _, o := range operations {
			c.cells = append(c.cells, cell(o))
		}
		return c
	}
	state := column("STATE", 0, false, func(o ops.Operation) string { return string(o.State) })
	state.style = func(line int) string {
		if operations[line].State == ops.Paused {
			return yellow
		}
		return ""
	}
	note := column("WHY", 0, false, why)
	note.most = -1
	return table{columns: columnsOf(
		column("ID", 0, true, func(o ops.Operation) string { return fmt.Sprint(o.ID) }),
		column("OPERATION", 0, false, func(o ops.Operation) string { return string(o.Action) }), state,
		column("CHANGED", 0, true, changedOf),
		column("OF", 3, false, target),
		column("BY", 2, false, func(o ops.Operation) string { return o.Actor }),
		column("AGE", 4, true, func(o ops.Operation) string { return age(m.since(o.CreatedAt)) }),
		note)}
}

// why is why an operation stands still, or else why it was begun.
func why(o ops.Operation) string {
	if o.Note != "" {
		return o.Note
	}
	return o.Reason
}

// changedOf is how far it is.
func changedOf(o ops.Operation) string {
	text := countAll(o.Changed)
	if o.Preview != nil {
		text += " of " + countAll(int64(o.Preview.Messages))
		if o.Preview.More {
			text += "+"
		}
	}
	return text
}

// target is the consumer, or the projection, that an operation is about.
func target(o ops.Operation) string {
	switch {
	case o.Target.Poisoned != nil && o.Target.Poisoned.Consumer != "":
		return o.Target.Poisoned.Consumer
	case o.Target.Pending != nil && o.Target.Pending.Consumer != "":
		return o.Target.Pending.Consumer
	case o.Target.Projection != "":
		return o.Target.Projection
	default:
		return o.Target.Consumer
	}
}
