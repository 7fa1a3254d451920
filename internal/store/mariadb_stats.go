package store

import (
	"context"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

func (m *mariadb) held() string { return mariaHeld }

func (m *mariadb) heldClaims() string {
	return `SELECT c.id AS claim_id, c.owner, c.solo, c.claimed_at, c.leased_until, JSON_LENGTH(c.message_ids) AS messages, h.id AS mid
		FROM {claims} c, JSON_TABLE(c.message_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) h`
}

// mariaStats is statsStatement for one consumer: here a subquery in FROM cannot
// refer to a list of consumers outside of it.
const mariaStats = `
SELECT {consumer} AS consumer,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = {consumer} AND m.crashes = 0 AND m.available_after <= {now}
    AND m.id NOT IN ({held}) LIMIT {max}) x)
  + (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = {consumer} AND m.crashes > 0
    AND m.id NOT IN ({held}) LIMIT {max}) x) AS ready,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = {consumer} AND m.crashes = 0 AND m.available_after > {now} LIMIT {max}) x) AS ` + "`delayed`" + `,
  (SELECT count(*) FROM ({held}) h STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = h.id WHERE m.consumer_type = {consumer}) AS leased,
  (SELECT count(*) FROM (SELECT 1 FROM {poisoned} p WHERE p.consumer_type = {consumer} LIMIT {max}) x) AS poisoned,
  (SELECT MIN(x.available_after) FROM (
    SELECT * FROM (SELECT m.available_after FROM {messages} m WHERE m.consumer_type = {consumer} AND m.crashes = 0 AND m.available_after <= {now}
      AND m.id NOT IN ({held}) ORDER BY m.available_after LIMIT 1) clean
    UNION ALL SELECT * FROM (SELECT m.available_after FROM {messages} m WHERE m.consumer_type = {consumer} AND m.crashes > 0
      AND m.id NOT IN ({held}) ORDER BY m.available_after LIMIT 1) crashed) x) AS oldest_ready,
  (SELECT MIN(p.poisoned_at) FROM {poisoned} p WHERE p.consumer_type = {consumer}) AS oldest_poisoned,
  {now} AS now`

// statsQuery counts for all of the consumers in one statement.
func (m *mariadb) statsQuery(ctx context.Context, consumers []string) (statement string, args []any) {
	one := strings.NewReplacer("{held}", mariaHeld, "{now}", m.now(ctx), "{max}", "?").Replace(mariaStats)
	var all []string
	for _, name := range consumers {
		all = append(all, strings.ReplaceAll(one, "{consumer}", "?"))
		args = append(args, name, name, bus.MaxQueueCount, name, bus.MaxQueueCount, name, bus.MaxQueueCount, name, name, bus.MaxQueueCount, name, name, name)
	}
	return m.expand(strings.Join(all, "\nUNION ALL ") + " ORDER BY consumer"), args
}
