package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"
)

// childVariable makes the test binary be the service.
const childVariable = "ORDERS_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestNoDatabaseIsExplained(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), settings{})
	if err == nil || !strings.Contains(err.Error(), "give -dsn or set DATABASE_URL") {
		t.Errorf("got %v, want it to say how to get a database", err)
	}
}

func TestUnknownDatabaseIsExplained(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), settings{dsn: "root:secret@unix(/tmp/s)/"})
	if err == nil || !strings.Contains(err.Error(), "want postgres://") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want it to say what is taken", err)
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if _, err := parse([]string{"-h"}, &out); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: got %v, want ErrHelp", err)
	}
	for _, want := range []string{
		"POST /orders", "GET  /healthz", "OTEL_EXPORTER_OTLP_ENDPOINT", "-dsn address", "-addr address", "-driver how",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("-h: got %s, want it to name %s", out.String(), want)
		}
	}
	if _, err := parse([]string{"-addr", ":1", "postgres://host/db"}, &out); err == nil ||
		!strings.Contains(err.Error(), `"postgres://host/db"`) {
		t.Errorf("surplus arguments: got %v, want them refused", err)
	}
	if _, err := parse([]string{"-driver", "pq"}, &out); err == nil || !strings.Contains(err.Error(), `"pq"`) {
		t.Errorf("another driver: got %v, want it refused", err)
	}
	if s, err := parse([]string{"-dsn", "d", "-addr", "a"}, &out); err != nil || s != (settings{dsn: "d", addr: "a", driver: "database/sql"}) {
		t.Errorf("got %+v, %v, want the flags", s, err)
	}
}

// service is a process of the service.
type service struct {
	*exec.Cmd
	url  string
	logs chan string // what it logs once it listens, when it has ended
}

// newDatabase makes a database of its own for a test.
func newDatabase(t *testing.T) (dsn string, db *bun.DB) {
	t.Helper()
	base := os.Getenv("ASYNCMONOLITH_TEST_POSTGRES")
	if base == "" {
		t.Fatal("ASYNCMONOLITH_TEST_POSTGRES is not set: run the tests with `make test`")
	}
	open := func(dsn string) *bun.DB {
		t.Helper()
		db, err := newDB(fxtest.NewLifecycle(t), settings{dsn: dsn}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	server, name := open(base), "orders_"+strings.ToLower(rand.Text()[:10])
	if _, err := server.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := server.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String(), open(u.String())
}

// newMariaDB makes a database on the MariaDB of the tests.
func newMariaDB(t *testing.T) (dsn string, db *bun.DB) {
	t.Helper()
	config, err := mysql.ParseDSN(os.Getenv("ASYNCMONOLITH_TEST_MARIADB"))
	if err != nil || config.Addr == "" || os.Getenv("ASYNCMONOLITH_TEST_MARIADB") == "" {
		t.Fatalf("ASYNCMONOLITH_TEST_MARIADB: got %v, want a server: run the tests with `make test`", err)
	}
	of := func(name string) string {
		u := url.URL{Scheme: "mysql", User: url.UserPassword(config.User, config.Passwd), Host: config.Addr, Path: "/" + name}
		if config.Net == "unix" {
			u.Host, u.RawQuery = "", url.Values{"socket": {config.Addr}}.Encode()
		}
		return u.String()
	}
	open := func(dsn string) *bun.DB {
		t.Helper()
		db, err := newDB(fxtest.NewLifecycle(t), settings{dsn: dsn}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	server, name := open(of("")), "orders_"+strings.ToLower(rand.Text()[:10])
	if _, err := server.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := server.ExecContext(context.Background(), "DROP DATABASE "+name); err != nil {
			t.Error(err)
		}
	})
	return of(name), open(of(name))
}

// startService starts a process and waits until it listens.
func startService(t *testing.T, flags ...string) *service {
	t.Helper()
	cmd := exec.Command(os.Args[0], append(flags, "-addr", "127.0.0.1:0")...)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(logs)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			t.Fatalf("the service ended: %v, %s", err, line)
		}
		var entry struct{ Msg, Addr string }
		if json.Unmarshal(line, &entry) == nil && entry.Msg == "listening" {
			s := &service{Cmd: cmd, url: "http://" + entry.Addr, logs: make(chan string, 1)}
			go func() { // ends with the process
				rest, _ := io.ReadAll(reader)
				s.logs <- string(rest)
			}()
			return s
		}
	}
}

// place orders something and returns the order's id, or "" when nobody answered.
func (s *service) place(client *http.Client, item string) string {
	answer, err := client.Post(s.url+"/orders", "application/json", bytes.NewBufferString(`{"item": "`+item+`"}`))
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	var order Order
	if answer.StatusCode != http.StatusCreated || json.NewDecoder(answer.Body).Decode(&order) != nil {
		return ""
	}
	return order.ID
}

func get(t *testing.T, client *http.Client, url string) (status int, body string) {
	t.Helper()
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// TestRestartsUnderLoadLoseNothing stops the service with SIGTERM, and kills it
// once, while orders come in, and then looks whether every order that was
// confirmed has been worked off exactly once.
func TestRestartsUnderLoadLoseNothing(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]struct {
		database func(*testing.T) (string, *bun.DB)
		driver   string
	}{"postgres": {newDatabase, "database/sql"}, "pgx": {newDatabase, "pgx"}, "mariadb": {newMariaDB, "database/sql"}} {
		t.Run(name, func(t *testing.T) { t.Parallel(); restartUnderLoad(t, with.database, with.driver) })
	}
}

func restartUnderLoad(t *testing.T, database func(*testing.T) (string, *bun.DB), driver string) {
	dsn, db := database(t)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var placed []string
	for round, signal := range []os.Signal{syscall.SIGTERM, os.Kill, syscall.SIGTERM} {
		s := startService(t, "-dsn", dsn, "-driver", driver)
		var customers sync.WaitGroup
		for range 4 {
			customers.Go(func() {
				for range 25 {
					if id := s.place(client, "book"); id != "" {
						mu.Lock()
						placed = append(placed, id)
						mu.Unlock()
					}
				}
			})
		}
		waitFor(t, "half of the orders", func() bool { mu.Lock(); defer mu.Unlock(); return len(placed) >= 50*(round+1) })
		if err := s.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		customers.Wait()
		if err := s.Wait(); err != nil && signal == syscall.SIGTERM {
			t.Errorf("round %d: the service ended with %v, want a clean stop", round, err)
		}
	}
	// What the killed process held is free again after the lease.
	past := "now() - interval '1 second'"
	if db.Dialect().Name() == dialect.MySQL {
		past = "1"
	}
	if _, err := db.ExecContext(t.Context(), "UPDATE message_claims SET leased_until = "+past); err != nil {
		t.Fatal(err)
	}
	s := startService(t, "-dsn", dsn, "-driver", driver)
	waitFor(t, "every order is shipped", func() bool {
		open, err := db.NewSelect().Model((*Order)(nil)).Where("shipped_at IS NULL OR reserved_at IS NULL").Count(t.Context())
		return err == nil && open == 0
	})
	checkOrders(t, db, placed)
	status, body := get(t, client, s.url+"/orders/"+placed[0])
	if status != http.StatusOK || !strings.Contains(body, "shipped_at") {
		t.Errorf("GET order: got %d %s, want it shipped", status, body)
	}
	if status, body := get(t, client, s.url+"/healthz"); status != http.StatusOK || !strings.Contains(body, `"ready":true`) ||
		!strings.Contains(body, `"abandoned":[]`) {
		t.Errorf("GET healthz: got %d %s, want ready", status, body)
	}
	if status, _ := get(t, client, s.url+"/orders/none"); status != http.StatusNotFound {
		t.Errorf("GET of a missing order: got %d, want 404", status)
	}
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if logs := <-s.logs; !strings.Contains(logs, `"msg":"stopping"`) || !strings.Contains(logs, `"msg":"stopped","error":null`) {
		t.Errorf("logs: got %.2000s, want the stop", logs)
	}
	if err := s.Wait(); err != nil {
		t.Errorf("the service ended with %v, want a clean stop", err)
	}
}

// checkOrders compares what was confirmed with what the tables hold.
func checkOrders(t *testing.T, db *bun.DB, placed []string) {
	t.Helper()
	for _, id := range placed {
		if n, err := db.NewSelect().Model((*Order)(nil)).Where("id = ?", id).Count(t.Context()); err != nil || n != 1 {
			t.Errorf("order %s: got %d rows, %v, want the confirmed order", id, n, err)
		}
	}
	var counts struct{ Orders, Reserved, Charges int }
	err := db.NewRaw(`SELECT (SELECT count(*) FROM orders) AS orders, (SELECT sum(reserved) FROM stock) AS reserved,
		(SELECT count(*) FROM charges) AS charges`).Scan(t.Context(), &counts)
	if err != nil {
		t.Fatal(err)
	}
	if counts.Reserved != counts.Orders || counts.Charges != counts.Orders {
		t.Errorf("got %+v, want one reservation and one charge for each order", counts)
	}
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline, tick := time.After(3*time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(fmt.Sprint("gave up waiting for ", what))
		}
	}
}
