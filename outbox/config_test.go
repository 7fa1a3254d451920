package outbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestZeroConfigWorks(t *testing.T) {
	t.Parallel()
	registry := newRegistry(t, orders("c"))
	if _, err := outbox.NewProcessor(noDatabase(t), registry, outbox.ProcessorConfig{}); err != nil {
		t.Errorf("NewProcessor: got %v, want no error", err)
	}
	if _, err := outbox.NewProducer(registry, outbox.ProducerConfig{}); err != nil {
		t.Errorf("NewProducer: got %v, want no error", err)
	}
}

func TestConfigOutOfRangeIsRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		config outbox.ProcessorConfig
		want   string
	}{
		{"negative loops", outbox.ProcessorConfig{Fetchers: -1}, "outbox: ProcessorConfig.Fetchers -1: 1 or more is allowed"},
		{"negative batch", outbox.ProcessorConfig{BatchSize: -5}, "outbox: ProcessorConfig.BatchSize -5: 1 or more is allowed"},
		{"negative maximum delay", outbox.ProcessorConfig{PollInterval: -1}, "outbox: ProcessorConfig.PollInterval -1ns: 0 or more is allowed"},
		{"negative concurrency", outbox.ProcessorConfig{Concurrency: -1}, "outbox: ProcessorConfig.Concurrency -1: 1 or more is allowed"},
		{"negative transactions", outbox.ProcessorConfig{TxConcurrency: -1}, "outbox: ProcessorConfig.TxConcurrency -1: 1 or more is allowed"},
		{"negative attempts", outbox.ProcessorConfig{MaxAttempts: -1}, "outbox: ProcessorConfig.MaxAttempts -1: 1 or more is allowed"},
		{"negative attempt delay", outbox.ProcessorConfig{AttemptDelay: -1}, "outbox: ProcessorConfig.AttemptDelay -1ns: 0 or more is allowed"},
		{"negative timeout", outbox.ProcessorConfig{DefaultTimeout: -1},
			"outbox: ProcessorConfig.DefaultTimeout -1ns: more than 0, up to 1h0m0s is allowed"},
		{"timeout too long", outbox.ProcessorConfig{DefaultTimeout: 2 * time.Hour},
			"outbox: ProcessorConfig.DefaultTimeout 2h0m0s: more than 0, up to 1h0m0s is allowed"},
		{"lease too short", outbox.ProcessorConfig{LeaseDuration: time.Millisecond},
			"outbox: ProcessorConfig.LeaseDuration 1ms: 1s or more is allowed"},
		{"negative start timeout", outbox.ProcessorConfig{StartTimeout: -1}, "outbox: ProcessorConfig.StartTimeout -1ns: 0 or more is allowed"},
		{"negative drain timeout", outbox.ProcessorConfig{DrainTimeout: -1}, "outbox: ProcessorConfig.DrainTimeout -1ns: 0 or more is allowed"},
		{"nil middleware", outbox.ProcessorConfig{Middleware: []bus.Middleware{nil}}, "outbox: ProcessorConfig.Middleware[0] is nil"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := outbox.NewProcessor(noDatabase(t), newRegistry(t, orders("c")), test.config)
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestEveryMistakeIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	registry := newRegistry(t, orders("hasty", outbox.GroupCommit(5)))
	_, err := outbox.NewProcessor(noDatabase(t), registry, outbox.ProcessorConfig{MaxAttempts: -1, Concurrency: -1})
	for _, want := range []string{"MaxAttempts -1", "Concurrency -1", `consumer "hasty": GroupCommit is for consumers made by ConsumeTx`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	}
}

func TestMissingPartsHideNoOtherMistake(t *testing.T) {
	t.Parallel()
	_, processorErr := outbox.NewProcessor(nil, nil, outbox.ProcessorConfig{MaxAttempts: -1})
	_, producerErr := outbox.NewProducer(nil, outbox.ProducerConfig{MaxPayload: -1, Middleware: []bus.ProduceMiddleware{nil, nil}})
	for err, wants := range map[error][]string{
		processorErr: {"handle is nil", "registry is nil", "MaxAttempts -1"},
		producerErr:  {"registry is nil", "MaxPayload -1", "Middleware[0] is nil", "Middleware[1] is nil"},
	} {
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want it to name %s", err, want)
			}
		}
	}
}

func TestNilArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	registry := newRegistry(t, orders("c"))
	for name, err := range map[string]error{
		"NewProcessor without a database": second(outbox.NewProcessor(nil, registry, outbox.ProcessorConfig{})),
		"NewProcessor without a registry": second(outbox.NewProcessor(noDatabase(t), nil, outbox.ProcessorConfig{})),
		"NewProducer without a registry":  second(outbox.NewProducer(nil, outbox.ProducerConfig{})),
		"NewProducer with a nil middleware": second(outbox.NewProducer(registry,
			outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{nil}})),
		"NewProducer with a negative size": second(outbox.NewProducer(registry, outbox.ProducerConfig{MaxPayload: -1})),
		"Migrate without a database":       outbox.Migrate(t.Context(), nil, bus.Tables{}),
		"Migrate with bad names":           outbox.Migrate(t.Context(), noDatabase(t), bus.Tables{Prefix: `x"; --`}),
		"Migrations without a database":    second(outbox.Migrations(nil, bus.Tables{})),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "outbox: ") {
			t.Errorf("%s: got %v, want an error of this package", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestSmallPoolIsRefused(t *testing.T) {
	t.Parallel()
	plain := newRegistry(t, orders("c"))
	mixed := newRegistry(t, orders("c"), outbox.ConsumeTx("tx", func(context.Context, bun.Tx, order) error { return nil }))
	tests := []struct {
		name     string
		registry *bus.Registry
		pool     int
		config   outbox.ProcessorConfig
		want     string
	}{
		{"too small for the loops", plain, 2, outbox.ProcessorConfig{}, "outbox: SetMaxOpenConns 2: 3 connections or more are needed (2 for fetchers, 0 for transactional consumers, 1 to renew leases)"},
		{"just large enough for the loops", plain, 3, outbox.ProcessorConfig{}, ""},
		{"too small for a transactional consumer", mixed, 3, outbox.ProcessorConfig{},
			"outbox: SetMaxOpenConns 3: 4 connections or more are needed (2 for fetchers, 1 for transactional consumers, 1 to renew leases)"},
		{"just large enough for one", mixed, 4, outbox.ProcessorConfig{}, ""},
		{"too small for those asked for", mixed, 10, outbox.ProcessorConfig{TxConcurrency: 8},
			"outbox: SetMaxOpenConns 10: 11 connections or more are needed (2 for fetchers, 8 for transactional consumers, 1 to renew leases)"},
		{"just large enough for those asked for", mixed, 11, outbox.ProcessorConfig{TxConcurrency: 8}, ""},
		{"unlimited", mixed, 0, outbox.ProcessorConfig{}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db := noDatabase(t)
			db.SetMaxOpenConns(test.pool)
			_, err := outbox.NewProcessor(db, test.registry, test.config)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestConsumeTxReportsItsMistakes(t *testing.T) {
	t.Parallel()
	_, err := bus.NewRegistry(outbox.ConsumeTx[order, bun.Tx]("tx", nil))
	if err == nil || !strings.Contains(err.Error(), `consumer "tx": the function is nil`) {
		t.Errorf("got %v, want the nil function reported", err)
	}
}

func TestTransactionalConsumerNeedsAProcessor(t *testing.T) {
	t.Parallel()
	consumer := outbox.ConsumeTx("tx", func(context.Context, bun.Tx, order) error { return nil })
	err := consumer.Consume(t.Context(), bus.JSON{}, []byte(`{}`))
	if err == nil || !strings.Contains(err.Error(), `consumer "tx" is transactional`) {
		t.Errorf("got %v, want it to say that only a Processor can run it", err)
	}
}

// otherDialect is the dialect of another database, by its name.
type otherDialect struct{ *pgdialect.Dialect }

func (otherDialect) Name() dialect.Name { return dialect.SQLite }

func TestADialectOfAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	registry, err := bus.RegistryConfig{Dialect: otherDialect{pgdialect.New()}}.NewRegistry(orders("c"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = outbox.NewProcessor(noDatabase(t), registry, outbox.ProcessorConfig{})
	if want := "outbox: NewProcessor: bus.RegistryConfig.Dialect is sqlite, the database's is pg"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
