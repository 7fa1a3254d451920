package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDiscardOfAnExportCountsWhatIsGone: a message that is requeued while the command runs stays, and is not counted.
func TestDiscardOfAnExportCountsWhatIsGone(t *testing.T) {
	t.Parallel()
	dsn := stocked(t)
	changed(t, dsn, `INSERT INTO poisoned_messages (id, message_id, consumer_type, payload_type, payload, created_at, available_after,
attempts, crashes, poisoned_at, reason) SELECT n, message_id, consumer_type, payload_type, payload, created_at, available_after, 5, 0, created_at,
'attempt 5 of 5 failed' FROM consumer_messages, (SELECT 101 AS n UNION ALL SELECT 102)`)
	export := called(t, dsn, "poisoned", "export", "--show-payloads", "--reason", "kept elsewhere")
	name := filepath.Join(t.TempDir(), "kept.ndjson")
	if err := os.WriteFile(name, []byte(export.out), 0o600); err != nil || export.code != exitDone {
		t.Fatalf("export: got %+v and error %v", export, err)
	}
	// Of message 102 nothing is deleted, as if it were gone between the look at it and the change.
	changed(t, dsn, `CREATE TRIGGER gone BEFORE DELETE ON poisoned_messages WHEN OLD.id = 102 BEGIN SELECT RAISE(IGNORE); END`)
	got := called(t, dsn, "discard", "--exported", name, "--yes", "--reason", "kept elsewhere")
	if got.code != exitPartly || !strings.Contains(got.out, "1 message discarded. 1 of the file are not poisoned any more.") {
		t.Errorf("got %+v, want exit code %d, and one message counted", got, exitPartly)
	}
}
