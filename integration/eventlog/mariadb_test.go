package eventlog_test

import (
	"context"
	"errors"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/projections"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestMariaDBHasNoEventLog: whatever is asked of the log there says so.
func TestMariaDBHasNoEventLog(t *testing.T) {
	t.Parallel()
	a := newApp(t, testdb.MariaDB(t))
	ctx, tables := a.ctx, projection.Projection{Name: "p", Reset: func(context.Context, bun.Tx) error { return nil }, On: []projection.Handler{
		projection.On(func(context.Context, bun.Tx, opened) error { return nil }),
	}}
	inTx := func(fn func(ctx context.Context, tx bun.Tx) error) error {
		return a.db.RunInTx(ctx, nil, fn)
	}
	for name, call := range map[string]func() error{
		"NewProcessor": func() error { _, err := outbox.NewProcessor(a.db, a.registry, outbox.ProcessorConfig{}); return err },
		"NewRunner": func() error {
			_, err := projection.NewRunner(a.db, a.log, projection.RunnerConfig{}, tables)
			return err
		},
		"Admin.States": func() error {
			admin, err := projections.NewAdmin(a.registry)
			if err != nil {
				return err
			}
			_, err = admin.States(ctx, a.db)
			return err
		},
		"Inline.Rebuild": func() error {
			inline, err := projection.NewInline(logaccess.Types(a.log), tables)
			if err != nil {
				return err
			}
			return inline.Rebuild(ctx, a.db, a.log)
		},
		"Append":  func() error { _, err := a.try("s", eventlog.NoStream, opened{}); return err },
		"RunInTx": func() error { return a.log.RunInTx(ctx, a.db, nil) },
		"Head":    func() error { _, err := a.log.Head(ctx, a.db); return err },
		"Number":  func() error { _, err := a.log.AssignPositions(ctx, a.db); return err },
		"Replay":  func() error { _, err := a.log.Replay(ctx, a.db, eventlog.Replay{}); return err },
		"ReadStream": func() (err error) {
			for _, err = range a.log.ReadStream(ctx, a.db, "s", 0) {
			}
			return err
		},
		"ReadLog": func() (err error) {
			for _, err = range a.log.ReadLog(ctx, a.db, 0, eventlog.Filter{}) {
			}
			return err
		},
		"Snapshot": func() error { _, _, err := logaccess.Snapshot(ctx, a.log, a.db, "s", "k"); return err },
		"SaveSnapshot": func() error {
			return inTx(func(ctx context.Context, tx bun.Tx) error {
				return logaccess.SaveSnapshot(ctx, a.log, tx, "s", "k", store.Snapshot{})
			})
		},
		"Tombstone": func() error {
			return inTx(func(ctx context.Context, tx bun.Tx) error { return a.log.Tombstone(ctx, tx, "s") })
		},
	} {
		if err := call(); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: got error %v, want one that is errors.ErrUnsupported", name, err)
		}
	}
}
