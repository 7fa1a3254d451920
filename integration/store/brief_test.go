package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// TestBriefReadsAreNotCompiled: PostgreSQL takes what skips through an index for far more work than it
// is, and would compile it for longer than it takes. The session is left as it was.
func TestBriefReadsAreNotCompiled(t *testing.T) {
	t.Parallel()
	db := testdb.OpenPostgres(t, testdb.PostgresDSN(t, "jit=on"))
	db.SetMaxOpenConns(1)
	s, err := store.For(db.Dialect().Name(), bus.Tables{})
	if err != nil {
		t.Fatal(err)
	}
	read := func(db bun.IDB) (jit, timeout string) {
		t.Helper()
		testapp.OK(t, db.NewRaw("SELECT current_setting('jit'), current_setting('statement_timeout')").Scan(t.Context(), &jit, &timeout))
		return jit, timeout
	}
	err = s.Briefly(t.Context(), db, 700*time.Millisecond, func(db bun.IDB) error {
		if jit, timeout := read(db); jit != "off" || timeout != "700ms" {
			t.Errorf("meanwhile: got jit %s and a timeout of %s, want off and 700ms", jit, timeout)
		}
		return nil
	})
	if jit, timeout := read(db); err != nil || jit != "on" || timeout == "700ms" {
		t.Errorf("afterwards: got jit %s, a timeout of %s, error %v, want what was", jit, timeout, err)
	}
}

// TestBriefReadsEnd: what the server gives up is known as that.
func TestBriefReadsEnd(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"postgres": testdb.Postgres, "mariadb": testdb.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			s, err := store.For(db.Dialect().Name(), bus.Tables{})
			if err != nil {
				t.Fatal(err)
			}
			sleep := map[string]string{"postgres": "SELECT pg_sleep(30)", "mariadb": "SELECT SLEEP(30)"}[name]
			err = s.Briefly(t.Context(), db, time.Second, func(db bun.IDB) error {
				_, err := db.ExecContext(t.Context(), sleep)
				return err
			})
			if !errors.Is(err, store.ErrLate) {
				t.Errorf("got error %v, want ErrExpired", err)
			}
		})
	}
}
