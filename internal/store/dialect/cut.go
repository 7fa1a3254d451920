package dialect

// Each returns the result of fn for each row.
func Each[R, T any](rows []R, fn func(R) T) []T {
	list := make([]T, len(rows))
	for i, row := range rows {
		list[i] = fn(row)
	}
	return list
}

// Cut splits rows into parts for one statement each, by number and by bytes. Only a single row that
// is larger exceeds the bytes.
func Cut[T any](rows []T, bytes int, sizeOf func(T) int) (parts [][]T) {
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

const (
	insertRows = 1000 // rows in one statement
	// InsertBytes bounds the payloads and headers of one statement.
	InsertBytes = 4 << 20
)
