package store

import "strings"

// poisonedID is the id under which a message is poisoned, as SQL: its own, or where a
// poisoned message has that already, since somebody has let the numbers begin anew
// (TRUNCATE ... RESTART IDENTITY), one that neither table has.
func poisonedID(id string) string {
	return strings.ReplaceAll(`CASE WHEN EXISTS (SELECT 1 FROM {poisoned} p WHERE p.id = {id}) THEN {id}
    + (SELECT COALESCE(MAX(p.id), 0) FROM {poisoned} p) + (SELECT COALESCE(MAX(o.id), 0) FROM {messages} o) ELSE {id} END`, "{id}", id)
}
