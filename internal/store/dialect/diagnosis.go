package dialect

import "time"

// Vital is a part of what Diagnose looks at. Each is a look of its own: one may not be allowed, or
// take too long.
type Vital uint8

// The parts.
const (
	Weaknesses  Vital = iota // settings under which a crash loses what was committed
	Connections              // those of the server
	Indexes                  // the existing indexes
	DeadRows                 // deleted rows that still take space and time
	Holders                  // what keeps those from being cleared
)

// Diagnosis is the result of one look at a part of the live database.
type Diagnosis struct {
	Absent      bool // the database does not have this part
	Weaknesses  []Weakness
	Used, Most  int // connections; Most of 0 is unknown
	Indexes     []FoundIndex
	DeadRows    []DeadTable
	HistoryList int64 // transactions whose old rows are not cleared yet, if counted for all tables together
	Holders     []Holder
}

// Weakness is a setting that costs safety.
type Weakness struct {
	Name, Value, Want string
	// Damages is true if a crash can leave a database that cannot be read, rather than one that
	// lacks the last commits.
	Damages bool
	// Idles is true if nothing is lost, but old rows are never cleared.
	Idles bool
}

// FoundIndex is an existing index. An invalid one may be kept up to date, but is not read.
type FoundIndex struct {
	Name  string `bun:"name"`
	Valid bool   `bun:"valid"`
}

// DeadTable is how much of a table is dead.
type DeadTable struct {
	Name string `bun:"name"`
	Live int64  `bun:"live"`
	Dead int64  `bun:"dead"`
}

// The kinds of holders.
const (
	OfTransaction = "transaction"
	OfPrepared    = "prepared transaction"
	OfSlot        = "replication slot"
)

// Holder is a session, prepared transaction or slot that may still need old rows. It has no texts
// of statements.
type Holder struct {
	Kind   string `bun:"kind"`
	PID    int64  `bun:"pid"`    // of the session, or 0
	Name   string `bun:"name"`   // of the application, the prepared transaction or the slot; may be empty
	Behind int64  `bun:"behind"` // transactions begun since, if they are counted
	Micros int64  `bun:"micros"` // its age; 0 if unknown
}

// Age returns the age of the holder, or 0 if it is unknown.
func (s Holder) Age() time.Duration { return time.Duration(s.Micros) * time.Microsecond }
