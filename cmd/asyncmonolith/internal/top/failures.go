package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

// failures draws failure groups, and the details of the chosen one.
func (p page) failures(room int) []string {
	found := p.overview.Failures
	if len(found) == 0 {
		return []string{"Nothing has failed."}
	}
	detail := p.detail(found[p.chosen])
	tableRoom := max(min(len(found), room-2-len(detail)), min(3, room-1), 1)
	lines := p.failureTable(found).lines(p.width, scroll(p.chosen, tableRoom), tableRoom, p.chosen)
	return append(append(lines, ""), detail...)
}

func (p page) failureTable(found []admin.FailureGroup) table {
	f := rows[admin.FailureGroup](found)
	consumer := f.left("CONSUMER", 0, func(f admin.FailureGroup) string { return f.Consumer })
	consumer.most = max(p.width/3, 12)
	last := f.right("LAST", 0, func(f admin.FailureGroup) string { return age(p.since(f.LastAt)) })
	text := f.left("ERROR", 0, func(f admin.FailureGroup) string { return f.Sample })
	text.most = -1
	return table{columns: []column{
		consumer,
		f.right("RUNS", 0, func(f admin.FailureGroup) string { return countAll(f.Runs) }),
		f.styled(last, func(f admin.FailureGroup) string {
			if p.failsNow(f) {
				return red
			}
			return ""
		}),
		f.right("FIRST", 2, func(f admin.FailureGroup) string { return age(p.since(f.FirstAt)) }),
		f.left("SINCE", 3, func(f admin.FailureGroup) string { return f.FirstVersion }),
		text}}
}

func (p page) failsNow(f admin.FailureGroup) bool { return p.since(f.LastAt) <= 15*time.Minute }

func (p page) detail(f admin.FailureGroup) []string {
	lines := []string{styled(bold, fit(f.ErrorType, p.width))}
	for line := range strings.SplitSeq(ansi.Wrap(show.Text(f.Sample), max(p.width-2, 1), ""), "\n") {
		lines = append(lines, "  "+line)
	}
	last := fmt.Sprintf("fingerprint %s · last message %d", f.Fingerprint, f.LastID)
	return append(lines[:min(len(lines), 8)], styled(dim, fit(last, p.width)))
}
