package dialect

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Names fills tables and traits into statements.
type Names struct {
	Prefix, Schema string
	Traits
	replacer *strings.Replacer
}

// Traits is what is fixed about a database: what it can do, and the SQL that differs in statements
// that all share.
type Traits struct {
	Files    embed.FS               // the migrations, with {names} to fill in
	RowLocks bool                   // it locks rows rather than itself
	Clock    string                 // its clock
	Instant  func(time.Time) string // formats an instant
	Unit     string                 // converts microseconds to what can be added to one
	// Micros are the microseconds since 1970 of an instant.
	Micros func(instant string) string
	// ReadOnly asks whether the server accepts no writes. It is empty if a running handler proves
	// that it does.
	ReadOnly string
	// Notify sends a text (the second value) on a channel to other processes. It is empty if there
	// are no notifications.
	Notify string
	// Installed selects the schema and prefix of tables like ours that this session sees, given the
	// end of a name. The schema is empty if it is the current one.
	Installed string
	// Session are columns of the Session. With them {idle} bounds the milliseconds that the session
	// may idle in its transaction. They may be empty.
	Session string
	// Within bounds (by the value) how long a transaction of our own can keep locks when its client
	// vanishes: each statement, and each wait for the next one. It is empty if the client is this
	// process, or if such settings would stay.
	Within string
	// Brief is a setting of sessions, in seconds, that bounds each statement. It is empty if Within
	// does that, or if a statement of ours ends with its context.
	Brief string
	// AsBegun resets the role and the path (the values), which decide where a statement looks for
	// tables, and as which role. It is sent before the statement. It is empty if there are none.
	AsBegun string
	// StillBegun is true in the transaction that began at Session.Begun (the value). It is empty if AsBegun is.
	StillBegun string
	// Fence makes the savepoint that [Direct.Intact] looks for. It is empty if Intact needs none.
	Fence string
	// Exists selects a message and waits for undecided transactions about it.
	Exists       string
	Place        string                                       // the column with an event's place, NULL until it has one
	Unplaced     string                                       // true for an event e without a place
	Last         string                                       // the last given place
	Once         string                                       // has a named query evaluated once
	Size         string                                       // how many messages a claim c has
	IDs          string                                       // begins FROM with the rows of a list of ids, if that takes more than a function
	Held         string                                       // selects the ids of all claimed messages
	Holds        string                                       // selects them, as mid, with their claims, as claim_id
	KeepConsumer string                                       // ends an insert that leaves an existing row of a consumer unchanged
	KeepSlot     string                                       // ends an insert that leaves an existing slot unchanged
	ShareLock    string                                       // ends a SELECT that locks rows against removal
	KeepNamed    string                                       // ends an insert that leaves an existing row of a name unchanged
	Merge        func(key string, sums, news []string) string // ends an insert AS r: an existing row gets sums of columns, and new values
	AsRow        string                                       // names the row r that such an insert finds
	Minute       string                                       // the minute that {now} is in
	Keys         string                                       // the table of pending insert ids, if there is one
	// GroupOrder has further sort columns for groups of poisoned messages, for the index to be read in the order of ids.
	GroupOrder string
	Bytes      string             // the length of a given text in bytes (a format)
	Keyed      string             // true for a pending message m with an insert id
	KeyRates   string             // the table of rates of keys, if there is one
	LastRank   string             // the place behind all others, for an insert
	HeldLanes  string             // selects the lanes that claims of some consumers hold, given their names
	HeldIDs    string             // selects the ids of their messages with keys, given their names
	Columns    string             // of a Pick m
	KeyOf      string             // the key and lane of a message m
	HasKey     string             // true for a pending message m with a key
	Instr      string             // the function that returns the position of a text in another
	OneByOne   bool               // rows are not looked up by comparing several columns at once
	Lateral    bool               // a join may refer to what stands before it
	Among      string             // true if what stands before it is in a given list of names
	NameList   func([]string) any // the list
	Lanes      LaneTraits
}

// LaneTraits are for databases with the keys, lanes and ranks of messages in a table of their own.
// They are empty if that is the table of messages.
type LaneTraits struct {
	Table   string // its name
	ByRank  string // messages with keys: consumer_type, rank, crashes
	ByLane  string // the same: id, consumer_type, lane, rank
	Crashed string // crashed messages with keys, with all columns
	Plan    string // begins a statement, to fix its plan
	ByKey   string // behind a table: look up rows by its primary key only
	Nothing string // begins FROM with a row of nothing
	Propose string // in place of proposeSQL
	Firsts  string // in place of firstLanes
	Head    string // messages with keys, to read the first one of a lane
}

// NewNames quotes names with the quotation mark of the dialect.
func NewNames(t bus.Tables, mark string, w Traits) Names {
	quote := func(name string) string {
		q := mark + t.Prefix + name + mark
		if t.Schema != "" {
			q = `"` + t.Schema + `".` + q
		}
		return q
	}
	tables := []string{
		"{gates}", quote("message_gates"), "{lanes}", quote(w.Lanes.Table), "{ranks}", quote("message_ranks"),
		"{keys}", quote(cmp.Or(w.Keys, "consumer_messages")), "{messages}", quote("consumer_messages"),
		"{claims}", quote("message_claims"), "{poisoned}", quote("poisoned_messages"), "{paused}", quote("paused_consumers"),
		"{inbox}", quote("inbox_messages"), "{inbox types}", quote("inbox_types"), "{recent}", quote("recent_insert_ids"),
		"{slots}", quote("message_slots"), "{rates}", quote("message_rates"), "{key rates}", quote(w.KeyRates),
		"{stops}", quote("message_stops"), "{breakers}", quote("message_breakers"), "{schedules}", quote("scheduled_messages"),
		"{fires}", quote("schedule_fires"), "{migrations}", quote("asyncmonolith_migrations"), "{prefix}", t.Prefix,
		"{events}", quote("events"), "{streams}", quote("event_streams"), "{head}", quote("event_head"),
		"{subscriptions}", quote("event_subscriptions"), "{projections}", quote("event_projections"),
		"{processes}", quote("message_processes"), "{minutes}", quote("message_minutes"), "{failures}", quote("message_failures"),
		"{crashes}", quote("message_crashes"), "{operations}", quote("message_operations"), "{parked}", quote("event_parked"),
		"{snapshots}", quote("event_snapshots"), "{groups}", quote("message_groups"), "{consumed}", quote("consumed_messages"),
	}
	lock, free := "", ""
	if w.RowLocks {
		lock, free = "FOR UPDATE", "FOR UPDATE SKIP LOCKED"
	}
	first, last := "p.id", "p.id DESC"
	if w.GroupOrder != "" {
		first, last = w.GroupOrder+", "+first, w.GroupOrder+" DESC, "+last
	}
	traits := []string{
		"{first of group}", first, "{last of group}", last, "{minute}", w.Minute, "{as row}", w.AsRow, "{place}", w.Place,
		"{unplaced}", w.Unplaced, "{last}", w.Last, "{once}", w.Once, "{size}", w.Size, "{ids}", w.IDs, "{held}", w.Held,
		"{holds}", w.Holds, "{keep consumer}", w.KeepConsumer, "{keep slot}", w.KeepSlot, "{keep named}", w.KeepNamed,
		"{lock shared}", w.ShareLock,
		"{session}", w.Session, "{payload bytes}", fmt.Sprintf(w.Bytes, "m.payload"), "{instr}", w.Instr, "{keyed}", w.Keyed,
		"{held lanes}", strings.ReplaceAll(w.HeldLanes, "{names}", w.Among),
		"{held ids}", strings.ReplaceAll(w.HeldIDs, "{names}", w.Among), "{names}", w.Among, "{key of}", w.KeyOf,
		"{has key}", cmp.Or(w.HasKey, "m.order_key = ?"), "{lane columns}", w.Columns + ", m.order_key, m.lane, m.rank",
		"{lock}", lock, "{lock free}", free, "{unit}", w.Unit, "{micros now}", w.Micros("{now}"),
		// {ahead}: the clock was set back since the lease began. {full lease} shortens such a lease and does not
		// end it, because its owner may be alive.
		"{ahead}", "leased_until > {now} + leased_for" + w.Unit, "{full lease}", "{now} + leased_for" + w.Unit,
		"{by rank}", cmp.Or(w.Lanes.ByRank, "{messages}"), "{by lane}", cmp.Or(w.Lanes.ByLane, "{messages}"),
		"{crashed by lane}", cmp.Or(w.Lanes.Crashed, "{messages}"), "{plan}", w.Lanes.Plan, "{by key}", w.Lanes.ByKey,
		"{from nothing}", w.Lanes.Nothing, "{first lanes}", cmp.Or(w.Lanes.Firsts, firstLanes),
		"{head of lane}", cmp.Or(w.Lanes.Head, "{messages}"),
	}
	inTraits := strings.NewReplacer(tables...)
	for i := range traits {
		traits[i] = inTraits.Replace(traits[i])
	}
	return Names{Prefix: t.Prefix, Schema: t.Schema, Traits: w, replacer: strings.NewReplacer(append(tables, traits...)...)}
}

// Expand fills table names into a statement of this package. Identifiers were
// validated with bus.Tables; values never pass through here.
func (n Names) Expand(statement string) string { return n.replacer.Replace(statement) }

// Query prepares a statement of this package.
func (n Names) Query(ctx context.Context, db bun.IDB, statement string, args ...any) *bun.RawQuery {
	return db.NewRaw(strings.ReplaceAll(n.Expand(statement), "{now}", n.Now(ctx)), args...)
}

// Exec executes a statement of this package.
func (n Names) Exec(ctx context.Context, db bun.IDB, statement string, args ...any) error {
	_, err := n.Query(ctx, db, statement, args...).Exec(ctx)
	return err
}

// Changed executes a statement of this package and returns how many rows it has changed.
func (n Names) Changed(ctx context.Context, db bun.IDB, statement string, args ...any) (int, error) {
	res, err := n.Query(ctx, db, statement, args...).Exec(ctx)
	if err != nil {
		return 0, err
	}
	changed, err := res.RowsAffected()
	return int(changed), err
}

// ChangedOne is Changed for a statement that changes a row or none.
func (n Names) ChangedOne(ctx context.Context, db bun.IDB, statement string, args ...any) (bool, error) {
	changed, err := n.Changed(ctx, db, statement, args...)
	return changed == 1, err
}

// Run executes one of the statements that take a list of ids, unless the list is empty.
func (n Names) Run(ctx context.Context, tx bun.IDB, statement string, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	return n.Exec(ctx, tx, statement, Ordered(ids))
}

// Said returns a table's name with its schema, unquoted, for error texts.
func (n Names) Said(table string) string {
	if n.Schema != "" {
		return n.Schema + "." + n.Prefix + table
	}
	return n.Prefix + table
}

// AsBegun returns what to send before a statement of a session in which a function of the
// application has run.
func (n Names) AsBegun(session Session) (statement string, args []any) {
	if session.Role == "" {
		return "", nil
	}
	return n.Traits.AsBegun, []any{session.Role, session.Path}
}

// BeginRun begins a transaction on a connection that plans nothing: it is part of [Dialect].
func (n Names) BeginRun(ctx context.Context, db *bun.DB) (RunTx, error) {
	tx, err := txn.Begin(ctx, db)
	return RunTx{Tx: tx}, err
}

// Unprepared returns false for databases that prepare nothing: it is part of [Dialect].
func (n Names) Unprepared() bool { return false }

// Tables returns the names: it is part of [Dialect] for those that embed them.
func (n Names) Tables() Names { return n }

// Now returns the database's clock, or the fixed instant of a test kit, as SQL.
func (n Names) Now(ctx context.Context) string {
	if t, ok := fixedClock(ctx); ok {
		return n.Instant(t)
	}
	return n.Clock
}

// After returns the instant d from now on the database's clock, as SQL.
func (n Names) After(ctx context.Context, d time.Duration) string {
	return fmt.Sprintf("%s + %d%s", n.Now(ctx), d.Microseconds(), n.Unit)
}

// Behind is true for rows behind a place in the order of columns, for which there is an index; the
// last column is an id. Its values are those of [Names.BehindArgs].
func (n Names) Behind(columns ...string) string {
	if !n.OneByOne {
		// With > a planner would read all of the place's consumer for rows not behind it.
		return "(" + strings.Join(columns, ", ") + ") >= (" + Rows("?", len(columns)) + " + 1)"
	}
	steps := make([]string, len(columns))
	for i, column := range columns {
		steps[i] = strings.Join(append(Each(columns[:i], func(c string) string { return c + " = ?" }), column+" > ?"), " AND ")
	}
	return "(" + strings.Join(steps, " OR ") + ")"
}

// BehindArgs returns the values of [Names.Behind] from those of the place.
func (n Names) BehindArgs(place ...any) []any {
	if !n.OneByOne {
		return place
	}
	var args []any
	for i := range place {
		args = append(args, place[:i+1]...)
	}
	return args
}
