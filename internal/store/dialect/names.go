package dialect

import (
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Names are the quoted table names, and the bare prefix for index names.
type Names struct {
	Prefix, Schema                                            string
	Messages, Claims, Poisoned, Paused, Schedules, migrations string
	Keys                                                      string // empty where insert ids have no table of their own
	replacer                                                  *strings.Replacer
}

// Fragments are SQL that differs by dialect, in statements that all share.
type Fragments struct {
	Place      string // the column with an event's place, NULL until it has one
	Unplaced   string // true of an event e that has no place yet
	Last       string // the last place that is given
	Once       string // asks for a named query to be evaluated once
	Size       string // how many messages a claim c has
	KeepPaused string // ends an insert that leaves a paused consumer as it is
	Keys       string // the table of pending insert ids, where they have one of their own
	Keyed      string // true of a pending message m with an insert id
}

// NewNames quotes names with the mark of the dialect.
func NewNames(t bus.Tables, mark string, w Fragments) Names {
	quote := func(name string) string {
		q := mark + t.Prefix + name + mark
		if t.Schema != "" {
			q = `"` + t.Schema + `".` + q
		}
		return q
	}
	n := Names{
		Prefix: t.Prefix, Schema: t.Schema,
		Messages: quote("consumer_messages"), Claims: quote("message_claims"),
		Poisoned: quote("poisoned_messages"), Paused: quote("paused_consumers"),
		Schedules: quote("scheduled_messages"), migrations: quote("asyncmonolith_migrations"),
	}
	if w.Keys != "" {
		n.Keys = quote(w.Keys)
	}
	events, head := quote("events"), quote("event_head")
	last := strings.NewReplacer("{events}", events, "{head}", head).Replace(w.Last)
	n.replacer = strings.NewReplacer("{place}", w.Place, "{unplaced}", w.Unplaced, "{last}", last,
		"{once}", w.Once, "{size}", w.Size, "{keep}", w.KeepPaused, "{keyed}", strings.ReplaceAll(w.Keyed, "{keys}", n.Keys), "{keys}", n.Keys,
		"{messages}", n.Messages, "{due}", quote("consumer_messages_due"), "{crashed}", quote("consumer_messages_crashed"), "{claims}", n.Claims,
		"{poisoned}", n.Poisoned, "{paused}", n.Paused, "{schedules}", n.Schedules, "{migrations}", n.migrations, "{prefix}", n.Prefix,
		"{events}", events, "{streams}", quote("event_streams"), "{head}", head,
		"{subscriptions}", quote("event_subscriptions"), "{projections}", quote("event_projections"),
		"{parked}", quote("event_parked"), "{snapshots}", quote("event_snapshots"))
	return n
}

// Expand fills table names into a statement of this package. Identifiers were
// validated with bus.Tables; values never pass through here.
func (n Names) Expand(statement string) string { return n.replacer.Replace(statement) }

// Prepare prepares a statement of this package; now is the clock.
func (n Names) Prepare(db bun.IDB, now, statement string, args ...any) *bun.RawQuery {
	return db.NewRaw(strings.ReplaceAll(n.Expand(statement), "{now}", now), args...)
}

// Said is a table's name as people write it, with its schema.
func (n Names) Said(table string) string {
	if n.Schema != "" {
		return n.Schema + "." + n.Prefix + table
	}
	return n.Prefix + table
}

// Tables returns the names: it is part of [Dialect] for those that embed them.
func (n Names) Tables() Names { return n }
