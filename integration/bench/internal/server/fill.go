package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Kind is what rows of ours belong to.
type Kind struct{ Consumer, Payload string }

// Fill writes so many messages of ours, of the kinds in turn, that have been due for a
// day, and tidies up as autovacuum would.
func Fill(ctx context.Context, dsn string, n int, kinds ...Kind) error {
	const fill = `INSERT INTO consumer_messages (message_id, consumer_type, payload_type, payload, created_at, available_after)
		SELECT gen_random_uuid(), ($2::text[])[1 + i % cardinality($2::text[])], ($3::text[])[1 + i % cardinality($3::text[])], '{}',
		  now() - interval '1 day', now() - interval '1 day' + i * interval '1 microsecond' FROM generate_series(1, $1::int) i`
	var consumers, payloads []string
	for _, kind := range kinds {
		consumers, payloads = append(consumers, kind.Consumer), append(payloads, kind.Payload)
	}
	return tidied(ctx, dsn, fmt.Sprintf("fill with %d rows", n), fill, n, consumers, payloads)
}

// Empty deletes all messages of ours, and tidies up as far as open snapshots allow.
func Empty(ctx context.Context, dsn string) error {
	return tidied(ctx, dsn, "delete all rows", "DELETE FROM consumer_messages")
}

func tidied(ctx context.Context, dsn, what, statement string, args ...any) (err error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if _, err := conn.Exec(ctx, statement, args...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if _, err := conn.Exec(ctx, "VACUUM ANALYZE consumer_messages"); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	return nil
}
