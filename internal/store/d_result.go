package store

import (
	"database/sql"
)

func affected(res sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

func affectedOne(res sql.Result, err error) (bool, error) {
	n, err := affected(res, err)
	return n == 1, err
}

// cut makes parts for one statement each, by number and by bytes. Only what is
// larger by itself exceeds the bytes.
func cut[T any](rows []T, bytes int, sizeOf func(T) int) (parts [][]T) {
	start, size := 0, 0
	for i, row := range rows {
		if i > start && (i-start >= insertRows || size+sizeOf(row) > bytes) {
			parts = append(parts, rows[start:i])
			start, size = i, 0
		}
		size += sizeOf(row)
	}
	if start < len(rows) {
		parts = append(parts, rows[start:])
	}
	return parts
}
