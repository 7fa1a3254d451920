package engine

import (
	"context"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// rename stores claimed messages of consumers that forward under the present names of those, before
// they run. What such a run has passed on is done elsewhere: a program of before the rename, which
// consumes by the former name itself, must not do it again when this process is lost. rename
// returns how many of the messages could not be renamed, and so must not run: they come last. What
// its consumer takes in the order of keys keeps its name, by which that goes.
func (r *run) rename(ctx context.Context, c store.Claim) (stay int, err error) {
	var rows []store.Former
	for i := range c.Messages {
		row := &c.Messages[i]
		to := r.dispatcher.byName[row.ConsumerType]
		if inOrder := row.Lane != 0 && to.KeyConcurrency() == 0; to.Forwards() && to.Name() != row.ConsumerType && !inOrder {
			rows = append(rows, store.Former{Message: row, Name: to.Name()})
		}
	}
	if len(rows) == 0 {
		return 0, nil
	}
	renamed, err := r.store.Rename(ctx, r.db, r.owner, c.ID, rows)
	if err != nil || len(renamed) == len(rows) {
		return 0, err
	}
	asked := make(map[int64]bool, len(rows))
	for _, row := range rows {
		asked[row.ID] = true
	}
	stays := func(m store.Message) int {
		if asked[m.ID] && !renamed[m.ID] {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(c.Messages, func(a, b store.Message) int { return stays(a) - stays(b) })
	return len(rows) - len(renamed), nil
}
