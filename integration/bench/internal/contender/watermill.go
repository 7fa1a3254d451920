package contender

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	watermillTopic = "signups"
	// watermillPoll is River's tuned poll interval: with its default of a second
	// watermill-sql would be measured by its sleep.
	watermillPoll = 20 * time.Millisecond
)

// Watermill is watermill-sql with its default schema.
func Watermill() Contender {
	return Contender{Name: NameWatermill, Open: func(ctx context.Context, dsn string, work Work) (System, error) {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, fmt.Errorf("data source name: %w", err)
		}
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
		work.Wire.count(config)
		db := stdlib.OpenDB(*config)
		db.SetMaxOpenConns(Pool)
		db.SetMaxIdleConns(Pool)
		s := &watermillSystem{db: db, work: work}
		if err := s.install(ctx); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return s, nil
	}}
}

// watermillSystem is watermill-sql in one database.
type watermillSystem struct {
	db         *sql.DB
	work       Work
	schema     wmsql.DefaultPostgreSQLSchema
	subscriber *wmsql.Subscriber
}

func (s *watermillSystem) install(ctx context.Context) (err error) {
	s.subscriber, err = wmsql.NewSubscriber(s.db, wmsql.SubscriberConfig{
		PollInterval:   watermillPoll,
		SchemaAdapter:  s.schema,
		OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
	}, watermill.NewSlogLogger(logger()))
	if err != nil {
		return err
	}
	if err := s.subscriber.SubscribeInitialize(watermillTopic); err != nil {
		return err
	}
	if s.work.Transactional {
		_, err = s.db.ExecContext(ctx, createEffects)
	}
	return err
}

func (s *watermillSystem) publish(db wmsql.ContextExecutor, batch ...Signup) error {
	publisher, err := wmsql.NewPublisher(db, wmsql.PublisherConfig{SchemaAdapter: s.schema}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	messages, err := watermillMessages(batch)
	if err != nil {
		return err
	}
	return publisher.Publish(watermillTopic, messages...)
}

// Produce implements System.
func (s *watermillSystem) Produce(_ context.Context, batch []Signup) error {
	return s.publish(s.db, batch...)
}

// ProduceOne implements System.
func (s *watermillSystem) ProduceOne(ctx context.Context, payload Signup) error {
	return inTx(ctx, s.db, func(tx *sql.Tx) error { return s.publish(tx, payload) })
}

func inTx(ctx context.Context, db *sql.DB, fn func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// watermillMessages encodes payloads.
func watermillMessages(batch []Signup) (message.Messages, error) {
	messages := make(message.Messages, len(batch))
	for i, payload := range batch {
		encoded, err := json.Marshal(payload)
		if err != nil {
			return nil, err
		}
		messages[i] = message.NewMessage(watermill.NewUUID(), encoded)
	}
	return messages, nil
}

// Start implements System.
func (s *watermillSystem) Start(ctx context.Context) (stop func() error, err error) {
	messages, err := s.subscriber.Subscribe(ctx, watermillTopic)
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m := range messages {
			if err := s.handle(m); err != nil {
				s.work.Fail(err)
				m.Nack()
				continue
			}
			m.Ack()
		}
	}()
	return func() error {
		err := s.subscriber.Close()
		<-done
		return err
	}, nil
}

func (s *watermillSystem) handle(m *message.Message) error {
	var payload Signup
	if err := json.Unmarshal(m.Payload, &payload); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	s.work.Handle(payload)
	if !s.work.Transactional {
		return nil
	}
	tx, ok := wmsql.TxFromContext(m.Context())
	if !ok {
		return errors.New("the message has no transaction")
	}
	_, err := tx.ExecContext(m.Context(), insertEffect, payload.UserID, payload.Email, payload.At)
	return err
}

// Pending implements System. Consumed messages stay; what tells is the offset.
func (s *watermillSystem) Pending(ctx context.Context) (pending bool, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM watermill_`+watermillTopic+` m
		WHERE (m.transaction_id, m."offset") > (SELECT last_processed_transaction_id, offset_acked FROM watermill_offsets_`+
		watermillTopic+`))`).Scan(&pending)
	return pending, err
}

// Verify implements System.
func (s *watermillSystem) Verify(ctx context.Context) error {
	pending, err := s.Pending(ctx)
	if err == nil && pending {
		err = errors.New("messages remain beyond the consumer's offset")
	}
	return err
}

// Close implements System.
func (s *watermillSystem) Close() error { return s.db.Close() }
