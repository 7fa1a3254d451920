package ops_test

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

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
