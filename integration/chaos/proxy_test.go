//go:build unix

package chaos_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// proxied is a database with a table, a way to it, and a way through a proxy.
type proxied struct {
	*testing.T
	proxy           *chaos.Proxy
	direct, through *sql.DB
}

func newProxied(t *testing.T, mariadb bool) *proxied {
	t.Helper()
	b := &bar{T: t, mariadb: mariadb}
	dsn := b.dsn()
	proxy, way := newProxy(b, dsn)
	p := &proxied{T: t, proxy: proxy, direct: openDSN(t, dsn).DB, through: openDSN(t, way).DB}
	testapp.OK(t, testapp.Second(p.direct.ExecContext(t.Context(), "CREATE TABLE seen (n int)")))
	return p
}

// onEach runs a test through a proxy to either database, whose protocols differ.
func onEach(t *testing.T, test func(p *proxied)) {
	for name, mariadb := range map[string]bool{"postgres": false, "mariadb": true} {
		t.Run(name, func(t *testing.T) { test(newProxied(t, mariadb)) })
	}
}

// insert inserts a row through the proxy, in a transaction.
func (p *proxied) insert() error {
	tx, err := p.through.BeginTx(p.Context(), nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(p.Context(), "INSERT INTO seen VALUES (1)"); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// rows counts what is in the table, in truth.
func (p *proxied) rows() (n int) {
	p.Helper()
	// A commit whose client is gone may still be under way.
	testapp.OK(p, p.direct.QueryRowContext(p.Context(), "SELECT count(*) FROM seen").Scan(&n))
	return n
}

func commits(fault chaos.Fault) func(string) chaos.Fault {
	return func(sql string) chaos.Fault {
		if strings.EqualFold(sql, "commit") {
			return fault
		}
		return chaos.Forward
	}
}

func TestProxyForwards(t *testing.T) {
	onEach(t, func(p *proxied) {
		var seen atomic.Int64
		p.proxy.Decide(func(sql string) chaos.Fault {
			if strings.HasPrefix(sql, "INSERT") {
				seen.Add(1)
			}
			return chaos.Forward
		})
		if err := p.insert(); err != nil || p.rows() != 1 || seen.Load() != 1 {
			p.Errorf("insert: got error %v, %d rows and %d statements seen, want none, 1 and 1", err, p.rows(), seen.Load())
		}
	})
}

func TestProxyDropsCommits(t *testing.T) {
	onEach(t, func(p *proxied) {
		p.proxy.Decide(commits(chaos.DropQuery))
		if err := p.insert(); err == nil || p.rows() != 0 {
			p.Errorf("a commit that is dropped: got error %v and %d rows, want an error and none", err, p.rows())
		}
		p.proxy.Decide(commits(chaos.Forward))
		if err := p.insert(); err != nil || p.rows() != 1 {
			p.Errorf("the next commit: got error %v and %d rows, want none and 1", err, p.rows())
		}
	})
}

func TestProxyDropsAnswersToCommits(t *testing.T) {
	onEach(t, func(p *proxied) {
		p.proxy.Decide(commits(chaos.DropReply))
		for n := 1; n <= 5; n++ {
			if err := p.insert(); err == nil {
				p.Error("a commit whose answer is dropped: got no error, want one")
			}
			// The server has flushed its answer, so it has committed.
			if p.rows() != n {
				p.Errorf("rows: got %d, want the %d that were committed all the same", p.rows(), n)
			}
		}
	})
}

func TestProxyForwardsLongMessages(t *testing.T) {
	p := newProxied(t, false)
	var text string // longer than any buffer on the way
	if err := p.through.QueryRowContext(t.Context(), "SELECT repeat('x', 1000000)").Scan(&text); err != nil || len(text) != 1000000 {
		t.Errorf("a long answer: got %d bytes and error %v, want 1000000", len(text), err)
	}
	if err := p.through.QueryRowContext(t.Context(), "SELECT $1::text", text).Scan(&text); err != nil || len(text) != 1000000 {
		t.Errorf("a long question: got %d bytes and error %v, want 1000000", len(text), err)
	}
}

func TestProxyDelays(t *testing.T) {
	p := newProxied(t, false)
	const d = 100 * time.Millisecond
	if err := p.insert(); err != nil { // with the connection there
		t.Fatal(err)
	}
	p.proxy.Delay(d)
	begun := time.Now()
	if err := p.insert(); err != nil || time.Since(begun) < 3*d {
		t.Errorf("three statements: got error %v after %s, want none after %s and more", err, time.Since(begun), 3*d)
	}
	p.proxy.Delay(0)
	if begun = time.Now(); p.insert() != nil || time.Since(begun) > 3*d {
		t.Errorf("without a delay: got %s, want less", time.Since(begun))
	}
}

func TestProxyStalls(t *testing.T) {
	p := newProxied(t, false)
	testapp.OK(t, p.insert())
	p.proxy.Stall(true)
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := p.through.ExecContext(ctx, "INSERT INTO seen VALUES (2)"); err == nil || time.Since(begun) < 200*time.Millisecond {
		t.Errorf("a statement into the black hole: got %v after %s, want an error when patience ends", err, time.Since(begun))
	}
	if p.rows() != 1 {
		t.Errorf("rows: got %d, want the 1 from before", p.rows())
	}
	p.proxy.Stall(false)
	if err := p.insert(); err != nil {
		t.Errorf("when it is over: got %v, want no error", err)
	}
}

func TestProxyResets(t *testing.T) {
	p := newProxied(t, false)
	tx := testapp.Must[*sql.Tx](t)(p.through.BeginTx(t.Context(), nil))
	testapp.OK(t, testapp.Second(tx.ExecContext(t.Context(), "INSERT INTO seen VALUES (1)")))
	if cut := p.proxy.Reset(); cut != 1 {
		t.Errorf("reset: got %d connections cut, want 1", cut)
	}
	if err := tx.Commit(); err == nil || p.rows() != 0 {
		t.Errorf("a commit after a reset: got error %v and %d rows, want an error and none", err, p.rows())
	}
	if err := p.insert(); err != nil || p.rows() != 1 {
		t.Errorf("the next connection: got error %v and %d rows, want none and 1", err, p.rows())
	}
}

func TestProxyCloses(t *testing.T) {
	p := newProxied(t, false)
	testapp.OK(t, p.insert())
	p.proxy.Stall(true) // must not keep it
	p.proxy.Close()
	if err := p.insert(); err == nil {
		t.Error("a statement through a closed proxy: got no error, want one")
	}
}
