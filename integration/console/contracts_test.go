package console_test

import (
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// TestAConsumersPayloads are on its page as a processor has reported them, as text.
func TestAConsumersPayloads(t *testing.T) {
	t.Parallel()
	db := migrated(t, testdb.SQLite(t))
	_, err := db.NewRaw(`INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state, contract)
		VALUES ('p', 'processor', 'web-1', 1, 'shop', 'v1', 0, CAST(unixepoch('subsec') * 1000000 AS INTEGER), '{}', '{}', ?)`,
		`{"consumers":{"mail":{"payloads":["order.placed"]}},"payloads":{"order.placed":{"schema_version":2,
		"schema":{"type":"object","properties":{"<b>id":{"type":"string"}}}}}}`).Exec(t.Context())
	testapp.OK(t, err)
	s := newSite(t, db, ops.Viewer)
	page := s.must("consumer?name=mail").body
	for _, want := range []string{"order.placed, schema 2", "&#34;type&#34;: &#34;object&#34;"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<b>id") {
		t.Error("the page has a field's name as markup")
	}
	if other := s.must("consumer?name=other").body; strings.Contains(other, "JSON Schema") {
		t.Error("the page of a consumer that was not reported has a schema")
	}
}
