package txn

import (
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
)

// habits are how a database, with its usual driver, treats transactions. This package distinguishes
// databases only here.
type habits struct {
	// statementsEnd: COMMIT and ROLLBACK are sent as statements. Those of the driver have no
	// context, and return a connection whose transaction may be open.
	statementsEnd bool
	// takesTurns: transactions that lose a conflict lose it again when they all repeat at once.
	takesTurns bool
	// namesHide: a savepoint makes the server forget an older one of the same name.
	namesHide bool
	// endsByItself: an interrupted statement may roll back the whole transaction.
	endsByItself bool
	// bound is a statement that has the server end the transaction when its client is idle in it
	// for so many milliseconds.
	bound string
	// aborts: after an error a transaction can only be rolled back.
	aborts bool
}

func habitsOf(db bun.IDB) habits {
	switch db.Dialect().Name() {
	case dialect.MySQL:
		return habits{statementsEnd: true, takesTurns: true, namesHide: true}
	case dialect.SQLite:
		return habits{endsByItself: true}
	case dialect.PG:
		return habits{aborts: true, bound: `SET LOCAL idle_in_transaction_session_timeout = %d`}
	}
	return habits{}
}
