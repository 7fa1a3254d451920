package txn

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// turnTries is how often a transaction is repeated that lost a deadlock. Those that
// repeat take turns, so it can only lose again to one that runs for the first time.
const turnTries = 16

const turn = `CONCAT('asyncmonolith.turn.', MD5(DATABASE()))`

// repeatInTurn repeats a transaction that lost a deadlock, which on MariaDB takes no more
// than two inserts of one insert id: each is granted a shared lock on the entry that
// the last such message has left among the insert ids, and neither can write over it
// beside the lock of the other. Of a crowd that repeats at once one gets on and the others
// lose again. So one repeats at a time; nobody waits longer than a second for that.
func repeatInTurn(ctx context.Context, db bun.IDB, fn func(tx bun.Tx) error) (err error) {
	conn, own := db.(bun.Conn)
	if pool, ok := db.(*bun.DB); ok {
		if conn, err = pool.Conn(ctx); err != nil {
			return fmt.Errorf("connection for another try: %w", err)
		}
		defer conn.Close()
	} else if !own { // a type of the caller's, of which there is no telling
		return repeat(ctx, db, turnTries, fn)
	}
	if _, err := conn.NewRaw(`DO GET_LOCK(` + turn + `, 1)`).Exec(ctx); err != nil {
		return fmt.Errorf("turn for another try: %w", err)
	}
	defer func() { // a connection that does not answer in time is closed, which ends the turn, too
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, _ = conn.NewRaw(`DO RELEASE_LOCK(` + turn + `)`).Exec(ctx)
	}()
	return repeat(ctx, conn, turnTries, fn)
}

func repeat(ctx context.Context, db bun.IDB, tries int, fn func(tx bun.Tx) error) error {
	for try := 1; ; try++ {
		err := readCommitted(ctx, db, fn)
		if !dberr.IsConflict(err) || try == tries {
			return err
		}
	}
}

type repeatKey struct{}

// WithRepeat says that what runs with the context has lost a conflict before, and is tried again.
func WithRepeat(ctx context.Context) context.Context {
	return context.WithValue(ctx, repeatKey{}, true)
}

// Repeated says whether the context belongs to such a try. Whoever may lose the same conflict once more can then take
// its locks first.
func Repeated(ctx context.Context) bool {
	repeated, _ := ctx.Value(repeatKey{}).(bool)
	return repeated
}
