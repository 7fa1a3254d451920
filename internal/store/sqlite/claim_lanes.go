package sqlite

import (
	"context"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// headsSQL reads the first messages of lanes, by one index lookup each.
const headsSQL = `
SELECT {lane columns}, m.available_after <= {now} AS due FROM (SELECT j.key AS o, j.value AS lane FROM json_each(?) j) l JOIN {messages} m ON m.id IN (
  SELECT m.id FROM {messages} m WHERE m.consumer_type = ? AND m.lane = l.lane AND m.lane IS NOT NULL{runnable} ORDER BY m.lane, m.rank LIMIT ?)
WHERE {free} ORDER BY l.o, m.rank`

// Heads implements [dialect.LaneDialect].
func (s *database) Heads(
	ctx context.Context, tx bun.IDB, l *dialect.Lanes, lanes []int64, each int,
) (picks []dialect.LanePick, err error) {
	free, values := s.Free("l", "m", l.Source)
	args := append([]any{dialect.AsJSON(lanes), l.Name}, append(l.Runnable(s.Names), each)...)
	err = s.Query(ctx, tx, l.For(strings.Replace(headsSQL, "{free}", free, 1)), append(args, values...)...).Scan(ctx, &picks)
	return picks, err
}
