package mariadb

import (
	"context"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// reservation is an insert id and its message, whose row id is ID + Place.
type reservation struct {
	dialect.PendingKey `bun:",extend"`
	ID                 int64
	Place              int `bun:"-"`
}

// reserve writes the insert ids that are not pending yet, and returns these. It waits for an insert
// id that another transaction is writing or removing. IGNORE would also cut text that is too long,
// and so change the key: package bus refuses that before.
func (m *database) reserve(ctx context.Context, tx bun.Tx, keys []dialect.PendingKey) (free map[dialect.PendingKey]bool, err error) {
	free = make(map[dialect.PendingKey]bool, len(keys))
	if len(keys) == 0 {
		return free, nil
	}
	slices.SortFunc(keys, dialect.PendingKey.Compare) // all in one order, so that no two can deadlock
	keys = slices.Compact(keys)
	args := make([]any, 0, 2*len(keys))
	for _, k := range keys {
		args, free[k] = append(args, k.InsertID, k.ConsumerType), true
	}
	n, err := m.Changed(ctx, tx, `INSERT IGNORE INTO {keys} (insert_id, consumer_type) VALUES `+dialect.Rows("(?, ?)", len(keys)), args...)
	if err != nil || n == len(keys) {
		return free, err
	}
	var mine []dialect.PendingKey
	if err := m.Query(ctx, tx, reservedSQL, dialect.AsJSON(keys)).Scan(ctx, &mine); err != nil {
		return nil, err
	}
	clear(free)
	for _, k := range mine {
		free[k] = true
	}
	return free, nil
}

// FreeKeys only reads and waits for no lock: locks on missing keys would be gap locks, at which
// callers' transactions deadlock.
func (m *database) FreeKeys(ctx context.Context, tx bun.Tx, keys []dialect.PendingKey) (free map[dialect.PendingKey]bool, err error) {
	var pending []dialect.PendingKey
	if err := m.Query(ctx, tx, pendingSQL, dialect.AsJSON(keys)).Scan(ctx, &pending); err != nil {
		return nil, err
	}
	free = make(map[dialect.PendingKey]bool, len(keys))
	for _, k := range keys {
		free[k] = true
	}
	for _, k := range pending {
		delete(free, k)
	}
	return free, nil
}

// listedSQL selects the existing ones of a list of insert ids.
const listedSQL = `SELECT k.insert_id, k.consumer_type FROM JSON_TABLE(?, '$[*]' COLUMNS (insert_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.InsertID', consumer VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.ConsumerType')) j
STRAIGHT_JOIN {keys} k FORCE INDEX (PRIMARY) ON k.insert_id = j.insert_id AND k.consumer_type = j.consumer`

// assign writes the message of each reserved insert id.
func (m *database) assign(ctx context.Context, tx bun.Tx, reserved []reservation) error {
	if len(reserved) == 0 {
		return nil
	}
	args := make([]any, 0, 4*len(reserved))
	for _, r := range reserved {
		args = append(args, r.InsertID, r.ConsumerType, r.ID, r.Place)
	}
	values := dialect.Rows("(?, ?, "+nthID+")", len(reserved))
	err := m.Exec(ctx, tx, `INSERT INTO {keys} (insert_id, consumer_type, id) VALUES `+values+` ON DUPLICATE KEY UPDATE id = VALUES(id)`, args...)
	return dberr.Wrap(err, "messages of insert ids")
}

const pendingSQL = listedSQL + ` WHERE k.id IS NOT NULL`

// reservedSQL finds insert ids without a message: those just written, and those of a failed produce
// whose caller committed nevertheless. It locks rows, and so needs no snapshot; the insert has the
// same locks already.
const reservedSQL = listedSQL + ` WHERE k.id IS NULL LOCK IN SHARE MODE`
