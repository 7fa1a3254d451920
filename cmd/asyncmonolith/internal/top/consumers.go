package top

import (
	"fmt"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

// page draws a view of a snapshot, with one line chosen.
type page struct {
	*snapshot
	width  int
	chosen int // index of a line
}

// scroll returns the first line to show so that the chosen one is visible.
func scroll(chosen, room int) int { return max(chosen-max(room, 1)+1, 0) }

func (p page) consumers(room int) []string {
	if len(p.queues) == 0 {
		return []string{"No consumer has messages."}
	}
	tableRoom := max(min(len(p.queues), room-1), 1)
	lines := p.queueTable().lines(p.width, scroll(p.chosen, tableRoom), tableRoom, p.chosen)
	for _, block := range [][]string{p.failing(), {p.programs()}, p.openOperations()} {
		if len(block) > 0 && len(lines)+1+len(block) <= room {
			lines = append(append(lines, ""), block...)
		}
	}
	return lines
}

func (p page) queueTable() table {
	r := rows[queue](p.queues)
	name := r.styled(r.left("CONSUMER", 0, func(q queue) string { return q.Consumer }), func(q queue) string {
		if q.stopped {
			return yellow
		}
		return ""
	})
	name.most = max(p.width*2/5, 12)
	poisoned := r.styled(r.right("POISONED", 0, func(q queue) string { return count(q.Poisoned) }), func(q queue) string {
		if q.failed && q.Poisoned > 0 {
			return red
		}
		return ""
	})
	note := r.styled(r.left("", 0, func(q queue) string { return q.note }), func(q queue) string {
		if q.stopped {
			return yellow
		}
		return dim
	})
	note.most = -1
	if p.width < 70 {
		note.drop = 9
	}
	return table{sorted: orders()[p.order].title, columns: []column{
		name,
		r.right("READY", 0, func(q queue) string { return count(q.Ready) }),
		r.right("DELAYED", 6, func(q queue) string { return count(q.Delayed) }),
		r.right("LEASED", 4, func(q queue) string { return count(q.Leased) }),
		poisoned,
		r.right("RATE", 1, func(q queue) string { return rate(q.perSecond) }),
		r.right("P50", 8, func(q queue) string { return atMost(q.half) }),
		r.right("P99", 5, func(q queue) string { return atMost(q.most) }),
		r.right("LAG", 7, func(q queue) string { return atMost(q.late) }),
		r.right("OLDEST", 2, func(q queue) string { return age(q.OldestReady) }),
		note}}
}

// mostBelow is how many failures and operations are shown below consumers.
const mostBelow = 4

// failing draws the failures of the last minutes.
func (p page) failing() []string {
	found := slices.DeleteFunc(slices.Clone(p.overview.Failures), func(f admin.FailureGroup) bool { return !p.failsNow(f) })
	if len(found) == 0 {
		return nil
	}
	t := p.failureTable(found[:min(len(found), mostBelow)])
	t.columns = slices.Delete(t.columns, 2, 3) // LAST, which is recent for all
	t.columns[0].title, t.columns[3].drop = "FAILING NOW", 1
	return p.withMore(t, len(found), "2")
}

// withMore draws the first lines of a table, and which key shows the rest.
func (p page) withMore(t table, all int, key string) []string {
	lines := t.lines(p.width, 0, mostBelow, -1)
	if all > mostBelow {
		lines = append(lines, styled(dim, fmt.Sprintf("%d more: press %s", all-mostBelow, key)))
	}
	return lines
}

func (p page) programs() string {
	alive, lost := p.overview.Programs()
	last := ""
	i := slices.IndexFunc(p.overview.Processes, func(p admin.Process) bool { return p.Status == admin.ProcessLost })
	if i >= 0 {
		lost := p.overview.Processes[i]
		last = fmt.Sprintf(" (%s on %s, %s ago)", show.Text(lost.Program), show.Text(lost.Host), age(p.since(lost.SeenAt)))
	}
	line := styled(bold, "PROGRAMS") + "  " + fmt.Sprint(alive) + " alive"
	if lost > 0 {
		line += ", " + styled(yellow, fmt.Sprint(lost, " lost")+last)
	}
	return line
}

// openOperations draws the unfinished operations, with fewer columns.
func (p page) openOperations() []string {
	if len(p.overview.Operations) == 0 {
		return nil
	}
	t := p.operationTable()
	t.columns[0].title, t.columns[1].title = "", "OPERATIONS"
	t.columns = append(t.columns[1:5:5], t.columns[len(t.columns)-1])
	return p.withMore(t, len(p.overview.Operations), "3")
}
