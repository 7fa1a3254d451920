package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// fixed is a statement whose text is always the same, because lists are passed as arrays. A
// connection plans it once, with PREPARE, and runs it with EXECUTE: planning these costs more than
// running them.
type fixed struct {
	name string
	text string // with ? for each value
	body string // with $1, $2 and so on
	call string // runs it, with ? for each value

	brief bool // planning it waits for no lock: a transaction of the application's would
}

func (p *database) fix(what, statement string) *fixed {
	var body strings.Builder
	values := 0
	for _, part := range strings.SplitAfter(strings.ReplaceAll(p.Expand(statement), "{now}", p.Clock), "?") {
		before, found := strings.CutSuffix(part, "?")
		body.WriteString(before)
		if found {
			values++
			fmt.Fprintf(&body, "$%d", values)
		}
	}
	hash := fnv.New64a()
	hash.Write([]byte(body.String()))
	name := fmt.Sprintf("asyncmonolith_%s_%x", what, hash.Sum64())
	return &fixed{
		name: name, text: statement, body: body.String(),
		call: "EXECUTE " + name + "(" + strings.TrimSuffix(strings.Repeat("?, ", values), ", ") + ")",
	}
}

// plans records the statements that connections have planned. It is safe for concurrent use.
type plans struct {
	off atomic.Bool // a pooler gives a client another connection for each transaction

	mu sync.Mutex
	of map[any]map[string]bool // by the driver's connection: the names of its statements
}

// session is a connection with the statements that it has planned.
type session struct {
	*database
	bun.IDB
	conn    bun.Conn // unless it is a transaction of the caller's
	begun   *bool    // set once it has begun a transaction of its own
	planned bool
}

// run returns one of the fixed statements with its values.
func (s session) run(ctx context.Context, f *fixed, args ...any) *bun.RawQuery {
	if s.planned {
		return s.NewRaw(f.call, args...)
	}
	return s.Query(ctx, s.IDB, f.text, args...)
}

// maxDead is how many dead connections in a row a pool may return before that is an error. Callers
// that do not choose a connection have database/sql repeat that.
const maxDead = 16

// on calls fn with a connection that has planned the given statements. If that is impossible, or
// once more if they turn out to be gone, the statements are sent as text.
func (p *database) on(ctx context.Context, db bun.IDB, statements []*fixed, fn func(session) error) error {
	pool, isPool := db.(*bun.DB)
	if conn, ok := db.(bun.Conn); ok {
		return p.onConn(ctx, conn, statements, fn)
	} else if !isPool {
		return fn(session{database: p, IDB: db})
	}
	for dead := 1; ; dead++ {
		conn, err := pool.Conn(ctx)
		if err != nil {
			return err
		}
		begun := false
		err = func() error {
			defer conn.Close() //nolint:errcheck // it returns to the pool
			return p.onConn(ctx, conn, statements, func(s session) error {
				s.begun = &begun
				return fn(s)
			})
		}()
		// A transaction that has begun may have been committed: it is not repeated.
		if !errors.Is(err, driver.ErrBadConn) || begun || dead == maxDead {
			return err
		}
	}
}

func (p *database) onConn(ctx context.Context, conn bun.Conn, statements []*fixed, fn func(session) error) error {
	planned := !p.plans.off.Load() && !dialect.HasFixedClock(ctx)
	if planned {
		var err error
		if planned, err = p.plan(ctx, conn, statements); err != nil {
			return err
		}
	}
	err := fn(session{database: p, IDB: conn, conn: conn, planned: planned})
	if !planned || !p.gone(ctx, conn, statements, err) {
		return err
	}
	return fn(session{database: p, IDB: conn, conn: conn})
}

func (p *database) Unprepared() bool { return p.plans.off.Load() }

// keyOf returns the key of a connection's plans, or nil. It is the driver's connection, or what
// that stands for, since the driver's own pool may wrap it anew each time.
func keyOf(conn bun.Conn) (key any, err error) {
	err = conn.Raw(func(driverConn any) error {
		v := reflect.ValueOf(driverConn)
		if inner := v.MethodByName("Conn"); inner.IsValid() && inner.Type().NumIn() == 0 && inner.Type().NumOut() == 1 {
			v = inner.Call(nil)[0]
		}
		if v.Comparable() {
			key = v.Interface()
		}
		return nil
	})
	return key, err
}

// plan has a connection plan statements unless it has. It returns false if the connection does not.
func (p *database) plan(ctx context.Context, conn bun.Conn, statements []*fixed) (ok bool, err error) {
	key, err := keyOf(conn)
	if err != nil || key == nil {
		return false, err
	}
	missing := func() bool {
		has := p.plans.has(key)
		return slices.ContainsFunc(statements, func(f *fixed) bool { return !has[f.name] })
	}
	if !missing() {
		return true, nil
	}
	// Another store may have planned them: a program has one store for each of its parts.
	var found []string
	if err := conn.NewRaw(`SELECT name FROM pg_catalog.pg_prepared_statements WHERE name LIKE 'asyncmonolith%'`).Scan(ctx, &found); err == nil {
		p.plans.add(key, found...)
	}
	has := p.plans.has(key)
	for _, f := range statements {
		if has[f.name] {
			continue
		}
		prepare := "PREPARE " + f.name + " AS " + f.body
		if f.brief {
			prepare = briefly + prepare
		}
		_, err := conn.ExecContext(ctx, prepare)
		switch {
		case err == nil, dberr.IsPlanned(err):
			p.plans.add(key, f.name)
		case dberr.IsUnknownStatement(err): // it does not support PREPARE
			p.plans.off.Store(true)
			return false, nil
		case dberr.ClassOf(err) == dberr.Other: // as text it fails with its own error, or succeeds
			return false, nil
		default:
			return false, fmt.Errorf("prepare: %w", err)
		}
	}
	return true, nil
}

// gone reports whether an error means that planned statements of a connection are gone or outdated.
func (p *database) gone(ctx context.Context, conn bun.Conn, statements []*fixed, err error) bool {
	switch {
	case dberr.IsPlanLost(err):
		p.plans.off.Store(true)
		return true
	case dberr.IsPlanStale(err): // a migration has changed the type of a column
		for _, f := range statements {
			_, _ = conn.ExecContext(ctx, "DEALLOCATE "+f.name)
		}
		if key, err := keyOf(conn); err == nil {
			p.plans.forget(key)
		}
		return true
	}
	return false
}

// inTx runs fn in a transaction with the settings that the fixed statements need. It begins in one
// round trip. It ends by statements, since the driver's end would take two round trips.
func (s session) inTx(ctx context.Context, begin string, fn func() error) error {
	if _, err := s.ExecContext(ctx, begin); err != nil {
		s.abandon(ctx)
		return fmt.Errorf("begin: %w", err)
	}
	*s.begun = true
	committed := false
	defer func() {
		if !committed { // also when a query hook panics
			s.abandon(ctx)
		}
	}()
	if err := fn(); err != nil {
		return err
	}
	if _, err := s.ExecContext(ctx, "COMMIT"); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	committed = true
	return nil
}

// abandon rolls back, or else makes the pool drop the connection. It bypasses query hooks, one of
// which may be the cause.
func (s session) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := s.conn.Conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// maxPlanners bounds the remembered connections, including closed ones. If there are more, the
// record begins anew.
const maxPlanners = 256

// has returns the names of the statements that a connection has planned.
func (p *plans) has(key any) map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[key]
}

func (p *plans) add(key any, names ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.of) >= maxPlanners && p.of[key] == nil {
		clear(p.of)
	}
	has := make(map[string]bool) // a new map: others read the old one
	for _, name := range names {
		has[name] = true
	}
	for other := range p.of[key] {
		has[other] = true
	}
	p.of[key] = has
}

func (p *plans) forget(key any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, key)
}
