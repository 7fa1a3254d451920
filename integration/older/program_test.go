package older_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// job is the payload; the older program has the same.
type job struct {
	Key    string `json:"key"`
	N      int    `json:"n"`
	Blocks bool   `json:"blocks"` // a run by the older program waits for release
}

func (job) PayloadType() string { return "job" }

// command is what the older program is told; see testdata/older.
type command struct {
	Do       string  `json:"do"`
	Jobs     []job   `json:"jobs,omitempty"`
	InsertID string  `json:"insert_id,omitempty"`
	IDs      []int64 `json:"ids,omitempty"`
	Error    string  `json:"error,omitempty"`
}

// line is what it says: of a run, or without a consumer, in answer to a command.
type line struct {
	N        int    `json:"n"`
	Error    string `json:"error"`
	Consumer string `json:"consumer"`
	Job      job    `json:"job"`
	Done     bool   `json:"done"` // and otherwise it begins, or has failed
}

// older is an older program that runs.
type older struct {
	*testing.T
	input   io.WriteCloser
	answers chan line
	stderr  bytes.Buffer // to be read once it has ended
	end     func()       // and wait for it
	kill    func()
	mu      sync.Mutex
	runs    []line
}

// a database on which the older program and the present one meet.
type database struct {
	db     *bun.DB
	driver string
	dsn    string
}

// on runs a test once for each of the databases that are named.
func on(t *testing.T, test func(t *testing.T, d database), names ...string) {
	t.Parallel()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d database
			switch name {
			case "postgres":
				dsn := testdb.PostgresDSN(t)
				d = database{testdb.OpenPostgres(t, dsn), "pgx", dsn}
			case "mariadb":
				dsn := testdb.MariaDBDSN(t)
				d = database{testdb.OpenMariaDB(t, dsn), "mysql", dsn}
			default:
				path := filepath.Join(t.TempDir(), "test.db")
				const settings = "_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
				d = database{testdb.OpenSQLiteWith(t, path, settings), "sqlite", "file:" + path + "?" + settings}
			}
			test(t, d)
		})
	}
}

// everywhere are all databases, and replacing those that can do what MariaDB cannot.
func everywhere() []string { return []string{"postgres", "mariadb", "sqlite"} }
func notMariaDB() []string { return []string{"postgres", "sqlite"} }

// startOlder starts an older program with consumers of jobs.
func startOlder(t *testing.T, d database, consumers ...string) *older {
	t.Helper()
	program, err := olderProgram()
	if err != nil {
		t.Fatal(err)
	}
	p := &older{T: t, answers: make(chan line, 1)}
	cmd := exec.Command(program, append([]string{d.driver, d.dsn}, consumers...)...)
	cmd.Stderr = &p.stderr
	p.input = testapp.Must[io.WriteCloser](t)(cmd.StdinPipe())
	output := testapp.Must[io.ReadCloser](t)(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.answers)
		p.listen(output)
	}()
	var killed bool
	p.kill = func() { killed = cmd.Process.Kill() == nil; p.end() }
	p.end = sync.OnceFunc(func() {
		_ = p.input.Close()
		<-read
		if err := cmd.Wait(); !killed && err != nil || p.stderr.Len() > 0 {
			t.Errorf("the older program: got %v, and it says:\n%s\nwant nothing", err, &p.stderr)
		}
	})
	t.Cleanup(p.end)
	return p
}

func (p *older) listen(output io.Reader) {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			p.Errorf("the older program: %q: %v", lines.Text(), err)
			return
		}
		if l.Consumer == "" {
			p.answers <- l
			continue
		}
		p.mu.Lock()
		p.runs = append(p.runs, l)
		p.mu.Unlock()
	}
}

// try has it do something, and returns the number of its answer and its error.
func (p *older) try(c command) (n int, err string) {
	p.Helper()
	if _, err := p.input.Write(append(testapp.Must[[]byte](p.T)(json.Marshal(c)), '\n')); err != nil {
		p.Fatalf("the older program: %s: %v", c.Do, err)
	}
	select {
	case answer, ok := <-p.answers:
		if !ok {
			p.end()
			p.Fatalf("the older program ended: %s", c.Do)
		}
		return answer.N, answer.Error
	case <-time.After(time.Minute):
		p.Fatalf("the older program: %s: no answer for a minute", c.Do)
	}
	return 0, ""
}

// do is try, which must succeed.
func (p *older) do(c command) int {
	p.Helper()
	n, err := p.try(c)
	if err != "" {
		p.Fatalf("the older program: %s: %s", c.Do, err)
	}
	return n
}

// drain has it run what it finds, and returns the numbers of those jobs in that order.
func (p *older) drain() []int {
	p.Helper()
	before := len(p.done(""))
	p.do(command{Do: "drain"})
	return p.done("")[before:]
}

// done lists the numbers of the jobs that it has done for a consumer, or for all.
func (p *older) done(consumer string) []int {
	return p.numbers(func(l line) bool { return l.Done && (consumer == "" || l.Consumer == consumer) })
}

// begun is how many runs have begun.
func (p *older) begun() int {
	return len(p.numbers(func(l line) bool { return !l.Done }))
}

func (p *older) numbers(of func(line) bool) (numbers []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.runs {
		if of(l) {
			numbers = append(numbers, l.Job.N)
		}
	}
	return numbers
}

// wantNumbers compares the numbers of jobs.
func wantNumbers(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
