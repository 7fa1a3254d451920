package dialect

import "time"

// Vital is a part of what Diagnose looks at. Each is looked at by itself: one may not be allowed, or
// take too long.
type Vital uint8

// The parts.
const (
	Weaknesses  Vital = iota // settings under which a crash takes what was committed
	Connections              // those of the server
	Indexes                  // those that there are
	DeadRows                 // what was deleted, and still takes room and time
	Holders                  // who keeps those from being cleared
)

// Diagnosis is what one look at a part of the live database has found.
type Diagnosis struct {
	Absent      bool // the database has no such thing
	Weaknesses  []Weakness
	Used, Most  int // connections; Most of 0 is unknown
	Indexes     []FoundIndex
	DeadRows    []DeadTable
	HistoryList int64 // transactions whose old rows are not cleared yet, where that is counted for all tables together
	Holders     []Holder
}

// Weakness is a setting that costs safety.
type Weakness struct {
	Name, Value, Want string
	// Damages is true where a crash can leave a database that cannot be read, rather than one that
	// lacks what was committed last.
	Damages bool
	// Idles is true where nothing is lost, but old rows are never cleared.
	Idles bool
}

// FoundIndex is an index that is there. An invalid one is kept up to date, perhaps, but not read.
type FoundIndex struct {
	Name  string `bun:"name"`
	Valid bool   `bun:"valid"`
}

// DeadTable tells how much of a table is dead.
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

// Holder is somebody who may still need old rows. It has no texts of statements.
type Holder struct {
	Kind   string `bun:"kind"`
	PID    int64  `bun:"pid"`    // of the session, or 0
	Name   string `bun:"name"`   // of the application, the prepared transaction or the slot; may be empty
	Behind int64  `bun:"behind"` // transactions that have begun since, where they are counted
	Micros int64  `bun:"micros"` // its age; 0 where it is not known
}

// Age is how old it is, or 0 where that is not known.
func (s Holder) Age() time.Duration { return time.Duration(s.Micros) * time.Microsecond }
