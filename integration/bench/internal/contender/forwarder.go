package contender

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/broker"
)

// forwarderBatch is how many rows the Forwarder's subscriber reads at once, its default being 100:
// each query sorts all that waits, so that fewer are faster.
const forwarderBatch = 1000

// Forwarder is Watermill's component of that name, from watermill-sql to watermill-nats, which
// publishes with message ids, as ours does.
func Forwarder() Contender {
	return Contender{Name: NameForwarder, Open: func(ctx context.Context, dsn string, work Work) (System, error) {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, fmt.Errorf("data source name: %w", err)
		}
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
		work.Wire.count(config)
		db := stdlib.OpenDB(*config)
		db.SetMaxOpenConns(Pool)
		db.SetMaxIdleConns(Pool)
		s := &forwarding{&watermillSystem{db: db, work: work, schema: wmsql.DefaultPostgreSQLSchema{SubscribeBatchSize: forwarderBatch}}}
		if err := s.install(ctx); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return s, nil
	}}
}

// forwarding is watermill-sql with a Forwarder as its consumer.
type forwarding struct{ *watermillSystem }

// envelop publishes messages that the Forwarder takes.
func (s *forwarding) envelop(db wmsql.ContextExecutor, batch ...Signup) error {
	publisher, err := wmsql.NewPublisher(db, wmsql.PublisherConfig{SchemaAdapter: s.schema}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	messages, err := watermillMessages(batch)
	if err != nil {
		return err
	}
	return forwarder.NewPublisher(publisher, forwarder.PublisherConfig{ForwarderTopic: watermillTopic}).
		Publish(s.work.Place.Destination, messages...)
}

// Produce implements System.
func (s *forwarding) Produce(_ context.Context, batch []Signup) error {
	return s.envelop(s.db, batch...)
}

// ProduceOne implements System.
func (s *forwarding) ProduceOne(ctx context.Context, payload Signup) error {
	return inTx(ctx, s.db, func(tx *sql.Tx) error { return s.envelop(tx, payload) })
}

// Start implements System.
func (s *forwarding) Start(ctx context.Context) (stop func() error, err error) {
	publisher, err := newForwardPublisher(s.work.Place)
	if err != nil {
		return nil, err
	}
	log := watermill.NewSlogLogger(logger())
	f, err := forwarder.NewForwarder(s.subscriber, publisher, log, forwarder.Config{ForwarderTopic: watermillTopic})
	if err != nil {
		return nil, errors.Join(err, publisher.Close())
	}
	end := background(context.WithoutCancel(ctx), s.work.Fail, f.Run)
	return func() error { return errors.Join(f.Close(), end(), publisher.Close()) }, nil
}

func newForwardPublisher(at broker.Address) (*wmnats.Publisher, error) {
	return wmnats.NewPublisher(wmnats.PublisherConfig{
		URL:       strings.Join(at.URLs, ","),
		Marshaler: &wmnats.NATSMarshaler{},
		JetStream: wmnats.JetStreamConfig{TrackMsgId: true},
	}, watermill.NewSlogLogger(logger()))
}
