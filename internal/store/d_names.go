package store

import (
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// names are the quoted table names, and the bare prefix for index names.
type names struct {
	prefix, schema                                            string
	messages, claims, poisoned, paused, schedules, migrations string
	keys                                                      string // empty where insert ids have no table of their own
	replacer                                                  *strings.Replacer
}

// words are what dialects have each their own of, in statements that they share.
type words struct {
	place    string // the column with an event's place, NULL until it has one
	unplaced string // true of an event e that has no place yet
	last     string // the last place that is given
	once     string // asks for a named query to be evaluated once
	size     string // how many messages a claim c has
	keep     string // ends an insert that leaves a paused consumer as it is
	keys     string // the table of pending insert ids, where they have one of their own
	keyed    string // true of a pending message m with an insert id
}

// newNames quotes names with the mark of the dialect.
func newNames(t bus.Tables, mark string, w words) names {
	quote := func(name string) string {
		q := mark + t.Prefix + name + mark
		if t.Schema != "" {
			q = `"` + t.Schema + `".` + q
		}
		return q
	}
	n := names{
		prefix: t.Prefix, schema: t.Schema,
		messages: quote("consumer_messages"), claims: quote("message_claims"),
		poisoned: quote("poisoned_messages"), paused: quote("paused_consumers"),
		schedules: quote("scheduled_messages"), migrations: quote("asyncmonolith_migrations"),
	}
	if w.keys != "" {
		n.keys = quote(w.keys)
	}
	events, head := quote("events"), quote("event_head")
	last := strings.NewReplacer("{events}", events, "{head}", head).Replace(w.last)
	n.replacer = strings.NewReplacer("{place}", w.place, "{unplaced}", w.unplaced, "{last}", last,
		"{once}", w.once, "{size}", w.size, "{keep}", w.keep, "{keyed}", strings.ReplaceAll(w.keyed, "{keys}", n.keys), "{keys}", n.keys,
		"{messages}", n.messages, "{due}", quote("consumer_messages_due"), "{crashed}", quote("consumer_messages_crashed"), "{claims}", n.claims,
		"{poisoned}", n.poisoned, "{paused}", n.paused, "{schedules}", n.schedules, "{migrations}", n.migrations, "{prefix}", n.prefix,
		"{events}", events, "{streams}", quote("event_streams"), "{head}", head,
		"{subscriptions}", quote("event_subscriptions"), "{projections}", quote("event_projections"),
		"{parked}", quote("event_parked"), "{snapshots}", quote("event_snapshots"))
	return n
}

// expand fills table names into a statement of this package. Identifiers were
// validated with bus.Tables; values never pass through here.
func (n names) expand(statement string) string { return n.replacer.Replace(statement) }

// query prepares a statement of this package; now is the clock.
func (n names) query(db bun.IDB, now, statement string, args ...any) *bun.RawQuery {
	return db.NewRaw(strings.ReplaceAll(n.expand(statement), "{now}", now), args...)
}

// said is a table's name as people write it, with its schema.
func (n names) said(table string) string {
	if n.schema != "" {
		return n.schema + "." + n.prefix + table
	}
	return n.prefix + table
}

func (n names) tables() names { return n }
