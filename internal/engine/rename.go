package engine

import (
	"context"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// rename stores claimed messages of forwarding consumers under their present names, before they
// run. Otherwise a program from before the rename, which consumes by the former name, could run
// them again if this process is lost. rename returns how many messages could not be renamed and so
// must not run; they come last. Messages that run in the order of keys keep their names, on which
// that order depends.
func (cl *claimer) rename(ctx context.Context, c store.Claim) (stay int, err error) {
	var rows []store.Former
	for i := range c.Messages {
		row := &c.Messages[i]
		to := cl.catalog.byName[row.ConsumerType]
		if inOrder := row.Lane != 0 && to.KeyConcurrency() == 0; to.Forwards() && to.Name() != row.ConsumerType && !inOrder {
			rows = append(rows, store.Former{Message: row, Name: to.Name()})
		}
	}
	if len(rows) == 0 {
		return 0, nil
	}
	renamed, err := cl.store.Rename(ctx, cl.db, cl.owner, c.ID, rows)
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
