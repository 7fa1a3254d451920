package stdqueries

import "context"

const insertOrder = `-- name: InsertOrder :exec
INSERT INTO orders (id, item) VALUES ($1, $2)
`

// InsertOrderParams are the parameters of InsertOrder.
type InsertOrderParams struct {
	ID   string
	Item string
}

// InsertOrder inserts an order.
func (q *Queries) InsertOrder(ctx context.Context, arg InsertOrderParams) error {
	_, err := q.db.ExecContext(ctx, insertOrder, arg.ID, arg.Item)
	return err
}

const handleOrder = `-- name: HandleOrder :exec
UPDATE orders SET handled = handled + 1 WHERE id = $1
`

// HandleOrder counts a consumer that has handled an order.
func (q *Queries) HandleOrder(ctx context.Context, id string) error {
	_, err := q.db.ExecContext(ctx, handleOrder, id)
	return err
}
