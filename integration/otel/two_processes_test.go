package otel_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Variables make this test binary act as the producer or the consumer process of
// an application, on the database that the driver and its source name.
const (
	roleVariable   = "ASYNCMONOLITH_TEST_ROLE"
	driverVariable = "ASYNCMONOLITH_TEST_DRIVER"
	sourceVariable = "ASYNCMONOLITH_TEST_SOURCE"
)

// Payloads that are consumed at once, at the second attempt, and never.
type (
	fine  struct{}
	flaky struct{}
	lost  struct{}
)

func (fine) PayloadType() string  { return "fine" }
func (flaky) PayloadType() string { return "flaky" }
func (lost) PayloadType() string  { return "lost" }

func shipping() (*bus.Registry, error) {
	return bus.NewRegistry(
		bus.Consume("ship-fine", func(context.Context, fine) error { return nil }),
		bus.Consume("ship-flaky", func(ctx context.Context, _ flaky) error {
			if m, _ := bus.MessageFromContext(ctx); m.Attempt == 1 {
				return errors.New("no carrier")
			}
			return nil
		}),
		bus.Consume("ship-lost", func(context.Context, lost) error { return &errCard{"4111"} }, bus.MaxAttempts(2)),
	)
}

// runRole is the main function of such a process.
func runRole(role string) int {
	ctx := context.Background()
	exporter, err := otlptracehttp.New(ctx) // all set up by OTEL_ variables
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	run := consumeUntilInputEnds
	if role == "producer" {
		run = produceOneOfEach
	}
	if err := errors.Join(run(ctx, tracers), tracers.Shutdown(ctx)); err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		return 1
	}
	return 0
}

func openShared() (*bun.DB, error) {
	conns, err := sql.Open(os.Getenv(driverVariable), os.Getenv(sourceVariable))
	if err != nil {
		return nil, err
	}
	if os.Getenv(driverVariable) == "sqlite" {
		conns.SetMaxOpenConns(4)
		return bun.NewDB(conns, sqlitedialect.New()), nil
	}
	return bun.NewDB(conns, pgdialect.New()), nil
}

func produceOneOfEach(ctx context.Context, tracers *sdktrace.TracerProvider) error {
	db, err := openShared()
	if err != nil {
		return err
	}
	defer db.Close()
	registry, err := shipping()
	if err != nil {
		return err
	}
	telemetry, err := amotel.NewTelemetry(amotel.TelemetryConfig{TracerProvider: tracers, Propagator: propagation.TraceContext{}})
	if err != nil {
		return err
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{Telemetry: telemetry.Produce()})
	if err != nil {
		return err
	}
	ctx, span := tracers.Tracer("app").Start(ctx, "checkout", trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	return producer.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
		for _, payload := range []bus.Payload{fine{}, flaky{}, lost{}} {
			if _, err := producer.Produce(ctx, tx, payload); err != nil {
				return err
			}
		}
		return nil
	})
}

func consumeUntilInputEnds(ctx context.Context, tracers *sdktrace.TracerProvider) error {
	db, err := openShared()
	if err != nil {
		return err
	}
	defer db.Close()
	registry, err := shipping()
	if err != nil {
		return err
	}
	telemetry, err := amotel.NewTelemetry(amotel.TelemetryConfig{TracerProvider: tracers, Propagator: propagation.TraceContext{}})
	if err != nil {
		return err
	}
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{
		PollInterval: 50 * time.Millisecond,
		Middleware:   middleware.Default(middleware.Options{Telemetry: telemetry.Consume(), Backoff: middleware.Constant(50 * time.Millisecond)}),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return processor.Run(ctx)
}

// collector is where the processes send their spans: OTLP over HTTP, in JSON.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []exportedSpan
}

type exportedSpan struct {
	service      string
	TraceID      string `json:"traceId"`
	SpanID       string `json:"spanId"`
	ParentSpanID string `json:"parentSpanId"`
	Name         string `json:"name"`
	Kind         int    `json:"kind"`
	Attributes   exportedAttributes
	Links        []struct{ TraceID, SpanID string }
	Status       struct{ Code int }
}

type exportedAttributes []struct {
	Key   string
	Value struct{ StringValue, IntValue string }
}

func (list exportedAttributes) get(key string) string {
	for _, a := range list {
		if a.Key == key {
			return a.Value.StringValue + a.Value.IntValue
		}
	}
	return ""
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			ResourceSpans []struct {
				Resource   struct{ Attributes exportedAttributes }
				ScopeSpans []struct{ Spans []exportedSpan }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("export to %s: got %v, want spans in JSON", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range body.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				for _, s := range scope.Spans {
					s.service = resource.Resource.Attributes.get("service.name")
					c.spans = append(c.spans, s)
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(c.Close)
	return c
}

// story describes the spans by name and number, as they follow from each other.
func (c *collector) story() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names, traces := map[string]string{}, map[string]string{}
	for _, s := range c.spans {
		names[s.SpanID] = s.Name
		if s.Name == "checkout" {
			traces[s.TraceID] = "the trace of checkout"
		}
	}
	kinds := map[int]string{2: "server", 4: "producer", 5: "consumer"}
	var lines []string
	for _, s := range c.spans {
		line := fmt.Sprintf("%s: %s, %s", s.service, s.Name, kinds[s.Kind])
		for _, key := range []string{"messaging.system", "messaging.operation.name", "messaging.destination.name",
			"messaging.consumer.group.name",
			"asyncmonolith.message.attempt", "asyncmonolith.message.outcome", "error.type"} {
			if value := s.Attributes.get(key); value != "" {
				line += ", " + value
			}
		}
		line += ", in " + traces[s.TraceID]
		if traces[s.TraceID] == "" {
			line += "one of its own"
		}
		if s.ParentSpanID != "" {
			line += " under " + names[s.ParentSpanID]
		}
		for _, link := range s.Links {
			line += ", link to " + names[link.SpanID] + " in " + traces[link.TraceID]
		}
		if s.Status.Code == 2 {
			line += ", status error"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestTracesAcrossTwoProcesses has one process that produces and another that
// consumes. Each exports its spans for itself; together they are the trace.
func TestTracesAcrossTwoProcesses(t *testing.T) {
	t.Parallel()
	const want = `consumer: process fine, consumer, asyncmonolith, process, fine, ship-fine, 1, done, in the trace of checkout under send fine, link to send fine in the trace of checkout
consumer: process flaky, consumer, asyncmonolith, process, flaky, ship-flaky, 1, retried, *errors.errorString, in the trace of checkout under send flaky, link to send flaky in the trace of checkout, status error
consumer: process flaky, consumer, asyncmonolith, process, flaky, ship-flaky, 2, done, in one of its own, link to send flaky in the trace of checkout
consumer: process lost, consumer, asyncmonolith, process, lost, ship-lost, 1, retried, *otel_test.errCard, in the trace of checkout under send lost, link to send lost in the trace of checkout, status error
consumer: process lost, consumer, asyncmonolith, process, lost, ship-lost, 2, poisoned, *otel_test.errCard, in one of its own, link to send lost in the trace of checkout, status error
producer: checkout, server, in the trace of checkout
producer: send fine, producer, asyncmonolith, send, fine, in the trace of checkout under checkout
producer: send flaky, producer, asyncmonolith, send, flaky, in the trace of checkout under checkout
producer: send lost, producer, asyncmonolith, send, lost, in the trace of checkout under checkout`
	databases := map[string]func(*testing.T) (db *bun.DB, driver, source string){
		"sqlite": func(t *testing.T) (*bun.DB, string, string) {
			path := t.TempDir() + "/shared.db"
			return testdb.OpenSQLite(t, path), "sqlite", "file:" + path + "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
		},
		"postgres": func(t *testing.T) (*bun.DB, string, string) {
			dsn := testdb.PostgresDSN(t)
			return testdb.OpenPostgres(t, dsn), "pgx", dsn
		},
	}
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, driver, source := open(t)
			check(t, outbox.Migrate(t.Context(), db, bus.Tables{}))
			c := newCollector(t)
			environment := append(os.Environ(), driverVariable+"="+driver, sourceVariable+"="+source,
				"OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=http/json")
			stop := startProcess(t, environment, "consumer")
			startProcess(t, environment, "producer")()
			poll(t, "one message is poisoned and no other left", func() bool {
				var left, poisoned int
				check(t, db.NewRaw("SELECT (SELECT count(*) FROM consumer_messages) + (SELECT count(*) FROM message_claims), (SELECT count(*) FROM poisoned_messages)").
					Scan(context.WithoutCancel(t.Context()), &left, &poisoned))
				return left == 0 && poisoned == 1
			})
			stop()
			if got := c.story(); got != want {
				t.Errorf("spans: got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// startProcess starts this binary in a role; stop ends its input and waits for it.
func startProcess(t *testing.T, environment []string, role string) (stop func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(slices.Clone(environment), roleVariable+"="+role, "OTEL_SERVICE_NAME="+role)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	input := must(cmd.StdinPipe())(t)
	check(t, cmd.Start())
	var once sync.Once
	stop = func() {
		once.Do(func() {
			_ = input.Close()
			if err := cmd.Wait(); err != nil || output.Len() > 0 {
				t.Errorf("%s process: got %v and output %q, want neither", role, err, output.String())
			}
		})
	}
	t.Cleanup(stop) // also when the test gives up
	return stop
}

// poll waits in real time.
func poll(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("gave up waiting: %s", what)
		}
	}
}
