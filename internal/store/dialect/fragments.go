package dialect

import (
	"fmt"
	"strings"
)

// OnPending leaves out rows whose insert id is pending.
const OnPending = `CONFLICT (insert_id, consumer_type) WHERE insert_id IS NOT NULL DO NOTHING`

// PausedNames is part of every claim and every poll, so that a pause holds everywhere from its
// commit on. The table is almost empty, and it is read once for each statement or want, not for
// each message.
const PausedNames = `SELECT consumer_type FROM {paused}`

// OnConsumer leaves an existing row of a consumer unchanged.
const OnConsumer = `ON CONFLICT (consumer_type) DO NOTHING`

// OnSlot leaves an existing slot unchanged.
const OnSlot = `ON CONFLICT (name, n) DO NOTHING`

// OnNamed leaves an existing row with that name as its key unchanged.
const OnNamed = `ON CONFLICT (name) DO NOTHING`

// Crash is the fingerprint, as SQL, of a message whose processes were lost while running it.
const Crash = "'crash'"

// PoisonedID returns the id under which a message is poisoned, as SQL. It is the message's own,
// unless a poisoned message has that id because the numbers were restarted (TRUNCATE ... RESTART
// IDENTITY). Then it is one that neither table has.
func PoisonedID(id string) string {
	return strings.ReplaceAll(`CASE WHEN EXISTS (SELECT 1 FROM {poisoned} p WHERE p.id = {id}) THEN {id}
    + (SELECT COALESCE(MAX(p.id), 0) FROM {poisoned} p) + (SELECT COALESCE(MAX(o.id), 0) FROM {messages} o) ELSE {id} END`, "{id}", id)
}

// MessageColumns are the columns of Message, in the order of its fields.
const MessageColumns = `m.id, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, m.errors, m.group_key`

// PickColumns are the same for a pick, which contains only small columns and the size of the large
// ones. length is how the dialect counts bytes.
func PickColumns(length string) string {
	text := fmt.Sprintf(length, "m.payload")
	size := fmt.Sprintf("("+text+" + COALESCE("+length+", 0) + COALESCE("+length+", 0))", "m.headers", "m.errors")
	small := func(column string) string {
		return fmt.Sprintf("CASE WHEN %s <= %d THEN m.%s END AS %s", size, inlinePayload, column, column)
	}
	columns := strings.NewReplacer("m.payload,", small("payload")+",", "m.headers", small("headers"), "m.errors,", small("errors")+",").
		Replace(MessageColumns)
	return columns + ", " + size + " AS size, " + text + " AS text"
}

// PoisonedColumns are the columns of poisoned_messages: the message's with two of its own, then its group.
const PoisonedColumns = `id, message_id, consumer_type, payload_type, payload, headers, insert_id,
	created_at, available_after, attempts, crashes, errors, poisoned_at, reason, group_key`

// BriefColumns are the columns that are never large.
const BriefColumns = `id, message_id, consumer_type, payload_type, insert_id, created_at, available_after, attempts, crashes, poisoned_at, reason, group_key`

// OnConflict merges rows: see [Traits].
func OnConflict(key string, sums, news []string) string {
	return "ON CONFLICT (" + key + ") DO UPDATE SET " + merged(sums, news, "%[1]s = r.%[1]s + excluded.%[1]s", "%[1]s = excluded.%[1]s")
}

// OnDuplicate merges rows: see [Traits].
func OnDuplicate(_ string, sums, news []string) string {
	return "ON DUPLICATE KEY UPDATE " + merged(sums, news, "%[1]s = %[1]s + VALUES(%[1]s)", "%[1]s = VALUES(%[1]s)")
}

func merged(sums, news []string, sum, value string) string {
	set := Each(sums, func(column string) string { return fmt.Sprintf(sum, column) })
	return strings.Join(append(set, Each(news, func(column string) string { return fmt.Sprintf(value, column) })...), ", ")
}
