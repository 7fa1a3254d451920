-- name: InsertOrder :exec
INSERT INTO orders (id, item) VALUES ($1, $2);

-- name: HandleOrder :exec
UPDATE orders SET handled = handled + 1 WHERE id = $1;
