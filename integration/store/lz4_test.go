package store_test

import (
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestLargePayloadsAreCompressedWithLZ4 where the server has it: that takes less than half of its time.
func TestLargePayloadsAreCompressedWithLZ4(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var known bool
	if err := db.NewRaw("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression' UNION ALL SELECT false LIMIT 1").
		Scan(t.Context(), &known); err != nil {
		t.Fatal(err)
	}
	want := 0
	if known {
		want = 5
	}
	var n int
	// The column is read as JSON: version 13 does not have it.
	err := db.NewRaw("SELECT count(*) FROM pg_attribute a WHERE to_jsonb(a) ->> 'attcompression' = 'l' AND a.attname IN ('payload', 'data', 'state')").
		Scan(t.Context(), &n)
	if err != nil || n != want {
		t.Errorf("got %d columns compressed with lz4, %v, want %d", n, err, want)
	}
}
