package admin_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// unused is a database that fails the test when it is used.
type unused struct{ t *testing.T }

func (u unused) Connect(context.Context) (driver.Conn, error) {
	u.t.Error("the database was used")
	return nil, errors.New("refused")
}

func (u unused) Driver() driver.Driver { return nil }

func TestAdminRefusesBadInputBeforeAnySQL(t *testing.T) {
	t.Parallel()
	registry, err := bus.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	client, err := admin.NewClient(registry)
	if err != nil {
		t.Fatal(err)
	}
	conns := sql.OpenDB(unused{t})
	defer conns.Close()
	db, ctx := bun.NewDB(conns, pgdialect.New()), t.Context()
	list := func(filter admin.Filter, page admin.Page) error {
		_, _, err := client.List(ctx, db, filter, page)
		return err
	}
	consumed := func(ids []int64) error {
		_, _, err := client.Consumed(ctx, db, admin.ConsumedFilter{IDs: ids}, admin.Page{})
		return err
	}
	second := func(_ any, err error) error { return err }
	for name, test := range map[string]struct{ err, want error }{
		"a negative page":           {list(admin.Filter{}, admin.Page{Size: -1}), bus.ErrInvalidOption},
		"a page too large":          {list(admin.Filter{}, admin.Page{Size: 1001}), bus.ErrInvalidOption},
		"a page that is no text":    {list(admin.Filter{}, admin.Page{After: "!"}), bus.ErrInvalidOption},
		"a page that is no JSON":    {list(admin.Filter{}, admin.Page{After: "bm8"}), bus.ErrInvalidOption},
		"a page that holds nothing": {list(admin.Filter{}, admin.Page{After: "e30"}), bus.ErrInvalidOption},
		"a page in the year -290308": {list(admin.Filter{}, admin.Page{After: "eyJ0IjotOTIyMzM3MjAzNjg1NDc3NTgwOCwiaSI6MX0"}),
			bus.ErrInvalidOption},
		"a page that examines -1":        {list(admin.Filter{}, admin.Page{ScanLimit: -1}), bus.ErrInvalidOption},
		"a state that there is not":      {list(admin.Filter{State: "done"}, admin.Page{}), bus.ErrInvalidOption},
		"no consumed ids":                {consumed([]int64{}), bus.ErrInvalidOption},
		"too many consumed ids":          {consumed(make([]int64, 1001)), bus.ErrInvalidOption},
		"a negative age":                 {list(admin.Filter{OlderThan: -1}, admin.Page{}), bus.ErrInvalidOption},
		"a consumer with a NUL byte":     {list(admin.Filter{Consumer: "a\x00"}, admin.Page{}), bus.ErrInvalidText},
		"a payload type that is no text": {second(client.Count(ctx, db, admin.Filter{PayloadType: "\xff"})), bus.ErrInvalidText},
		"an insert id that is no text":   {list(admin.Filter{InsertID: "\xff"}, admin.Page{}), bus.ErrInvalidText},
		"the zero time":                  {second(client.Reschedule(ctx, db, time.Time{}, 1)), bus.ErrInvalidOption},
		"a year beyond 9999": {second(client.Reschedule(ctx, db, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), 1)),
			bus.ErrInvalidOption},
		"a year beyond 9999 in UTC": {second(client.Reschedule(ctx, db, time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -7200)),
			1)), bus.ErrInvalidOption},
		"a pause of nobody":    {client.Pause(ctx, db, "", admin.PauseNote{}), bus.ErrInvalidOption},
		"a pause of no text":   {client.Pause(ctx, db, "\xff", admin.PauseNote{}), bus.ErrInvalidText},
		"a resume of too much": {client.Resume(ctx, db, strings.Repeat("x", 256)), bus.ErrTooLarge},
	} {
		if !errors.Is(test.err, test.want) || !strings.HasPrefix(test.err.Error(), "admin: ") {
			t.Errorf("%s: got %v, want %v", name, test.err, test.want)
		}
	}
	for name, err := range map[string]error{
		"no registry":    second(admin.NewClient(nil)),
		"no database":    second(client.Get(ctx, nil, 1)),
		"a nil database": second(client.Cancel(ctx, (*bun.DB)(nil), 1)),
		"the zero admin": second(new(admin.Client).Queues(ctx, db)),
		"its resume":     new(admin.Client).Resume(ctx, db, "c"),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "admin: ") {
			t.Errorf("%s: got %v, want an error of this package", name, err)
		}
	}
	if result, err := client.Cancel(ctx, db); err != nil || result.Changed != 0 {
		t.Errorf("cancelling nothing: got %+v, %v", result, err)
	}
}
