package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/cpu"
)

const (
	wordGo   = "go"
	wordMark = "mark"
)

// Serve is the child's side: it carries out the request, the text of the
// environment variable, until the end of in.
func Serve(ctx context.Context, request string, in io.Reader, out io.Writer) error {
	var r Request
	if err := json.Unmarshal([]byte(request), &r); err != nil {
		return fmt.Errorf("%s: %w", Variable, err)
	}
	s := &service{record: r.Record, failed: make(chan struct{}, 1)}
	if err := s.serve(ctx, r, in, out); err != nil {
		s.fail(err)
	}
	return json.NewEncoder(out).Encode(s.response())
}

// service is a child's work, and what it counts.
type service struct {
	record     bool
	statements statements
	markedCPU  time.Duration
	markedSQL  int64
	endCPU     time.Duration
	endSQL     int64

	failed chan struct{} // of size 1: a signal, not a queue

	mu    sync.Mutex
	found Response
	errs  []error
}

func (s *service) serve(ctx context.Context, r Request, in io.Reader, out io.Writer) (err error) {
	c := contender.Idle(r.Tenants, &s.statements)
	if !r.Idle {
		if c, err = contender.ByName(r.Contender); err != nil {
			return err
		}
	}
	system, err := c.Open(ctx, r.DSN, contender.Work{Handle: s.handle, Fail: s.fail, Place: r.Place})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, system.Close()) }()
	if _, err := fmt.Fprintln(out, ready); err != nil {
		return err
	}
	return s.obey(ctx, system, lines(in))
}

// obey does as it is told until the words end, or something fails.
func (s *service) obey(ctx context.Context, system contender.System, words <-chan string) (err error) {
	stop := func() error { return nil }
	defer func() { err = errors.Join(err, stop()) }()
	for {
		select {
		case <-s.failed:
			return nil // fail has kept the error
		case word, more := <-words:
			switch {
			case !more:
				s.endCPU, s.endSQL = cpu.Process(), s.statements.Load()
				return nil
			case word == wordGo:
				if stop, err = system.Start(ctx); err != nil {
					stop = func() error { return nil }
					return err
				}
			case word == wordMark:
				s.markedCPU, s.markedSQL = cpu.Process(), s.statements.Load()
			default:
				return fmt.Errorf("unknown word %q", word)
			}
		}
	}
}

// lines reads in line by line. The reading cannot be interrupted; it ends with
// the process.
func lines(in io.Reader) <-chan string {
	words := make(chan string)
	go func() {
		defer close(words)
		for scanner := bufio.NewScanner(in); scanner.Scan(); {
			words <- scanner.Text()
		}
	}()
	return words
}

func (s *service) handle(payload contender.Signup) {
	now := time.Now().UnixNano()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found.Handled++
	s.found.Sum += payload.UserID
	if s.record {
		s.found.Starts = append(s.found.Starts, Start{ID: payload.UserID, At: now})
	}
}

func (s *service) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
	select {
	case s.failed <- struct{}{}:
	default:
	}
}

func (s *service) response() Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found.CPU, s.found.Statements = s.endCPU-s.markedCPU, s.endSQL-s.markedSQL
	if err := errors.Join(s.errs...); err != nil {
		s.found.Err = err.Error()
	}
	return s.found
}

// statements counts what the driver sends.
type statements struct{ atomic.Int64 }

// TraceQueryStart implements pgx.QueryTracer.
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
