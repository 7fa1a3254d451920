package txn

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// turnTries is how often a transaction that lost a deadlock is repeated. Repeated ones take turns,
// so one can lose again only to a first try.
const turnTries = 16

const turn = `CONCAT('asyncmonolith.turn.', MD5(DATABASE()))`

// repeatInTurn repeats a transaction that lost a deadlock. On MariaDB two inserts of one insert id
// are enough: each gets a shared lock on the entry that the last such message left among the insert
// ids, and neither can overwrite it beside the other's lock. If many repeat at once, one succeeds
// and the others lose again. So one repeats at a time; the others wait for a second at most.
func repeatInTurn(ctx context.Context, db bun.IDB, fn func(tx bun.Tx) error) (err error) {
	conn, own := db.(bun.Conn)
	if pool, ok := db.(*bun.DB); ok {
		if conn, err = pool.Conn(ctx); err != nil {
			return fmt.Errorf("get a connection to repeat the transaction: %w", err)
		}
		defer conn.Close()
	} else if !own { // a type of the caller's, about which nothing is known
		return repeat(ctx, db, turnTries, fn)
	}
	if _, err := conn.NewRaw(`DO GET_LOCK(` + turn + `, 1)`).Exec(ctx); err != nil {
		return fmt.Errorf("wait to repeat the transaction: %w", err)
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

// WithRepeat marks a context as that of another try after a lost conflict.
func WithRepeat(ctx context.Context) context.Context {
	return context.WithValue(ctx, repeatKey{}, true)
}

// Repeated reports whether the context belongs to such a try. Code that may lose the same conflict
// again can then take its locks first.
func Repeated(ctx context.Context) bool {
	repeated, _ := ctx.Value(repeatKey{}).(bool)
	return repeated
}
