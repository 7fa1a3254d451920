package ops_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// offline is a database that is not there.
type offline struct{}

func (offline) Connect(context.Context) (driver.Conn, error) { return nil, errors.New("offline") }
func (offline) Driver() driver.Driver                        { return nil }

// An operation changes many messages. Plan it, check the preview, and start it. An [ops.Runner]
// carries it out.
func ExampleOperations_Plan() {
	var (
		ctx      = context.Background()
		db       *bun.DB       // opened by the application
		registry *bus.Registry // of the application
	)
	service, err := ops.New(ops.Config{DB: db, Registry: registry})
	if err != nil {
		fmt.Println(err)
		return
	}
	session := service.As(ops.Principal{Name: "ada", Role: ops.Operator})
	operation, err := session.Operations().Plan(ctx, ops.Requeue, ops.Target{Poisoned: &poison.Filter{Consumer: "charge-card"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(operation.Preview.Messages, "messages")
	operation, err = session.Operations().Start(ctx, operation.ID, ops.StartOptions{Reason: "the provider is back"})
	fmt.Println(operation.State, err)
}

// A principal has a role, which Allow narrows. What is not permitted returns ErrForbidden.
func ExampleService_As() {
	plan := func(ctx context.Context, service *ops.Service) error {
		session := service.As(ops.Principal{Name: "bob", Role: ops.Operator, Allow: func(_ ops.Action, consumer string) bool {
			return consumer == "" || consumer == "send-receipt"
		}})
		_, err := session.Operations().Plan(ctx, ops.Requeue, ops.Target{Poisoned: &poison.Filter{Consumer: "charge-card"}})
		return err
	}
	db := bun.NewDB(sql.OpenDB(offline{}), pgdialect.New()) // the application's
	defer db.Close()
	registry, err := bus.NewRegistry()
	if err != nil {
		fmt.Println(err)
		return
	}
	service, err := ops.New(ops.Config{DB: db, Registry: registry})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = plan(context.Background(), service)
	fmt.Println(errors.Is(err, ops.ErrForbidden))
	// Output: true
}
