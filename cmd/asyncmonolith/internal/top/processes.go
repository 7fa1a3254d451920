package top

import (
	"fmt"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// processes draws processes, and unfinished operations.
func (p page) processes(room int) []string {
	found, operations := p.overview.Processes, p.overview.Operations
	var lines []string
	foot := 0
	if len(operations) > 0 {
		foot = min(len(operations), max(room/3, 3)) + 2
	}
	if len(found) == 0 {
		lines = append(lines, "No process has reported.")
	} else {
		tableRoom := max(min(len(found), room-1-foot), 1)
		lines = append(lines, p.processTable().lines(p.width, scroll(min(p.chosen, len(found)-1), tableRoom), tableRoom, p.chosen)...)
	}
	if len(operations) == 0 {
		return lines
	}
	inOperations := max(p.chosen-len(found), -1)
	lines = append(lines, "")
	return append(lines, p.operationTable().lines(p.width, scroll(max(inOperations, 0), foot-2), foot-2, inOperations)...)
}

func (p page) processTable() table {
	r := rows[admin.Process](p.overview.Processes)
	status := r.styled(r.left("STATUS", 0, func(p admin.Process) string { return string(p.Status) }), func(p admin.Process) string {
		if p.Status == admin.ProcessLost {
			return yellow
		}
		return ""
	})
	number := func(p admin.Process, n int) string {
		if p.Status != admin.ProcessAlive || p.Limit == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	note := r.left("", 0, processNote)
	note.most = -1
	return table{columns: []column{status,
		r.left("PROGRAM", 2, func(p admin.Process) string { return p.Program }),
		r.left("VERSION", 0, func(p admin.Process) string { return p.Version }),
		r.left("HOST", 0, func(p admin.Process) string { return p.Host }),
		r.right("PID", 5, func(p admin.Process) string { return fmt.Sprint(p.PID) }),
		r.left("KIND", 3, func(p admin.Process) string { return p.Kind }),
		r.right("RUNNING", 1, func(p admin.Process) string { return number(p, p.Running) }),
		r.right("QUEUED", 6, func(p admin.Process) string { return number(p, p.Queued) }),
		r.right("LIMIT", 7, func(p admin.Process) string { return number(p, p.Limit) }),
		r.right("UP", 4, func(p admin.Process) string { return age(p.SeenAt.Sub(p.StartedAt)) }),
		r.right("SEEN", 0, func(found admin.Process) string { return age(p.since(found.SeenAt)) }),
		note}}
}

func processNote(p admin.Process) string {
	var notes []string
	if len(p.Stuck) > 0 {
		notes = append(notes, "stuck: "+strings.Join(p.Stuck, ", "))
	}
	for _, circuit := range p.OpenCircuits {
		notes = append(notes, "circuit open: "+circuit.Consumer)
	}
	return strings.Join(notes, "; ")
}

func (p page) operationTable() table {
	r := rows[ops.Operation](p.overview.Operations)
	state := r.styled(r.left("STATE", 0, func(o ops.Operation) string { return string(o.State) }), func(o ops.Operation) string {
		if o.State == ops.Paused {
			return yellow
		}
		return ""
	})
	note := r.left("WHY", 0, why)
	note.most = -1
	return table{columns: []column{
		r.right("ID", 0, func(o ops.Operation) string { return fmt.Sprint(o.ID) }),
		r.left("OPERATION", 0, func(o ops.Operation) string { return o.Action.String() }), state,
		r.right("CHANGED", 0, changedOf),
		r.left("OF", 3, target),
		r.left("BY", 2, func(o ops.Operation) string { return o.Actor }),
		r.right("AGE", 4, func(o ops.Operation) string { return age(p.since(o.CreatedAt)) }),
		note}}
}

// why is why an operation has paused itself, or else why it was started.
func why(o ops.Operation) string {
	if o.Note != "" {
		return o.Note
	}
	return o.Reason
}

// changedOf shows how many messages an operation has changed, of how many.
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

// target is the consumer or projection of an operation.
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
