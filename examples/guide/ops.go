package guide

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// OpenService makes the ops service of the program.
func OpenService(db *bun.DB, registry *bus.Registry) (*ops.Service, error) {
	// snippet: service
	service, err := ops.New(ops.Config{DB: db, Registry: registry,
		// Redact returns what operators may see. Nil hides all contents.
		Redact: func(_ context.Context, c ops.Content) ops.Content {
			if strings.HasPrefix(c.PayloadType, "card.") {
				c.Payload, c.Headers = nil, nil
			}
			return c
		},
	})
	// end
	return service, err
}

// RunOperations runs operations.
func RunOperations(ctx context.Context, service *ops.Service) error {
	runner, err := ops.NewRunner(service, nil) // or your *projection.Runner, for what is done to projections
	if err != nil {
		return err
	}
	return runner.Run(ctx) // blocks: beside the processors
}

// AtTheService shows what fails, and plans to run it again.
func AtTheService(ctx context.Context, service *ops.Service, out io.Writer) error {
	findings, err := service.As(ops.Principal{Name: "ada@example.com", Role: ops.Viewer}).Check(ctx)
	if err != nil {
		return err
	}
	for _, f := range findings {
		fmt.Fprintln(out, f.Severity, f.Subject, f.Text)
	}
	// snippet: session
	session := service.As(ops.Principal{Name: "ada@example.com", Role: ops.Operator}) // from your login
	planned, err := session.Operations().Plan(ctx, ops.Requeue, ops.Target{Poisoned: &poison.Filter{Consumer: "charge-card"}})
	if err != nil {
		return err // ops.ErrNoMatch, ops.ErrForbidden
	}
	fmt.Fprintln(out, planned.Preview.Messages, "messages") // ask for confirmation
	started, err := session.Operations().Start(ctx, planned.ID, ops.StartOptions{Rate: 100, Canary: 10, Reason: "fixed in 1.4.3"})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, started.State)
	// end
	return nil
}
