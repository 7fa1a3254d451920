package contender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	rawBatch = 500
	rawIdle  = 5 * time.Millisecond

	rawSelect = `SELECT id, payload FROM consumer_messages
		WHERE consumer_type = 'count-0' AND payload_type = 'user.signed_up' AND keyed = FALSE AND crashes = 0 AND available_after <= now()
		ORDER BY available_after, id LIMIT $1 FOR UPDATE SKIP LOCKED`
	rawDelete = "DELETE FROM consumer_messages WHERE id = ANY($1)"
)

// Raw is the limit of what the database gives: one owner that locks a batch,
// decodes and handles it, deletes it and commits, on our tables and with no
// layer between it and the driver. It promises little: no timeouts, no retries,
// and all of a batch again after a crash.
func Raw() Contender {
	return Contender{Name: NameRaw, Open: func(ctx context.Context, dsn string, work Work) (System, error) {
		if work.Transactional {
			return nil, errors.New("the raw limit has no transactional work")
		}
		db, err := openBun(dsn, Variant{Pool: Pool}, nil)
		if err != nil {
			return nil, err
		}
		inner, err := openOurs(ctx, db, Variant{}, work)
		if err != nil {
			return nil, err
		}
		return &raw{ours: inner, dsn: dsn}, nil
	}}
}

// raw produces and is verified as ours is.
type raw struct {
	*ours
	dsn string
}

// Start implements System.
func (s *raw) Start(ctx context.Context) (stop func() error, err error) {
	if err := s.markTail(ctx); err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(s.dsn)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	s.work.Wire.count(config)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return background(ctx, s.work.Fail, func(ctx context.Context) error {
		return errors.Join(s.loop(ctx, conn), conn.Close(context.WithoutCancel(ctx)))
	}), nil
}

// loop takes batches until ctx ends.
func (s *raw) loop(ctx context.Context, conn *pgx.Conn) error {
	for ctx.Err() == nil {
		n, err := s.batch(context.WithoutCancel(ctx), conn)
		if err != nil {
			return err
		}
		if n == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(rawIdle):
			}
		}
	}
	return nil
}

func (s *raw) batch(ctx context.Context, conn *pgx.Conn) (n int, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, rawSelect, rawBatch)
		if err != nil {
			return fmt.Errorf("select: %w", err)
		}
		ids := make([]int64, 0, rawBatch)
		var id int64
		var text []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &text}, func() error {
			var payload Signup
			if err := json.Unmarshal(text, &payload); err != nil {
				return fmt.Errorf("decode: %w", err)
			}
			ids = append(ids, id)
			s.work.Handle(payload)
			return nil
		})
		if n = len(ids); err != nil || n == 0 {
			return err
		}
		_, err = tx.Exec(ctx, rawDelete, ids)
		return err
	})
	return n, err
}
