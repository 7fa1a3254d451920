package pgxtx

import (
	"database/sql/driver"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// rows are rows of pgx as those of a driver of database/sql.
type rows struct {
	rows    pgx.Rows
	types   *pgtype.Map
	more    bool
	columns []string
}

// Columns implements driver.Rows.
func (r *rows) Columns() []string {
	if r.columns == nil {
		for _, f := range r.rows.FieldDescriptions() {
			r.columns = append(r.columns, f.Name)
		}
	}
	return r.columns
}

// Close implements driver.Rows.
func (r *rows) Close() error {
	r.rows.Close()
	return r.rows.Err()
}

// Next implements driver.Rows.
func (r *rows) Next(dest []driver.Value) (err error) {
	if !r.more {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	fields := r.rows.FieldDescriptions()
	for i, src := range r.rows.RawValues() {
		if dest[i], err = value(r.types, fields[i].DataTypeOID, fields[i].Format, src); err != nil {
			return err
		}
	}
	r.more = r.rows.Next()
	return nil
}

// value decodes a column into a type of database/sql, as pgx's own package stdlib does.
func value(types *pgtype.Map, oid uint32, format int16, src []byte) (driver.Value, error) {
	if src == nil {
		return nil, nil
	}
	switch oid {
	case pgtype.BoolOID:
		return scan[bool](types, oid, format, src)
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		return scan[int64](types, oid, format, src)
	case pgtype.Float4OID, pgtype.Float8OID:
		return scan[float64](types, oid, format, src)
	case pgtype.ByteaOID, pgtype.JSONOID, pgtype.JSONBOID:
		return scan[[]byte](types, oid, format, src)
	case pgtype.TimestampOID:
		var t pgtype.Timestamp
		err := types.Scan(oid, format, src, &t)
		return t.Time, err
	case pgtype.TimestamptzOID:
		var t pgtype.Timestamptz
		err := types.Scan(oid, format, src, &t)
		return t.Time, err
	}
	return scan[string](types, oid, format, src)
}

func scan[T any](types *pgtype.Map, oid uint32, format int16, src []byte) (driver.Value, error) {
	var v T
	err := types.Scan(oid, format, src, &v)
	return v, err
}
