// Two services with a database each: orders takes orders, on PostgreSQL or SQLite, and shipping,
// on SQLite, ships them. Between them is a broker, NATS JetStream. Shipping is killed at the worst
// moment and started again, and in the end there is one shipment for each order.
//
//	go run ./examples/services                             # orders on SQLite; needs nothing but Go
//	scripts/with-postgres.sh go run ./examples/services    # orders on PostgreSQL
//
// The services are packages orders and shipping. This program is the broker, starts itself once
// for each service, and tells what happens. It takes some seconds, and leaves nothing behind.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/examples/services/orders"
	"github.com/asyncmonolith/asyncmonolith-go/examples/services/service"
	"github.com/asyncmonolith/asyncmonolith-go/examples/services/shipping"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	s := service.FromEnv()
	var err error
	switch s.Name {
	case "orders":
		err = orders.Run(service.UntilStdinEnds(ctx), s)
	case "shipping":
		err = shipping.Run(service.UntilStdinEnds(ctx), s)
	default:
		_, err = run(ctx, os.Stdout, os.Getenv("ASYNCMONOLITH_TEST_POSTGRES"))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmp.Or(s.Name, "services"), err)
		os.Exit(1)
	}
}

// run tells the whole story to out. With the address of a PostgreSQL orders uses a database on that.
func run(ctx context.Context, out io.Writer, postgres string) (end ending, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "services")
	if err != nil {
		return end, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d, err := newDatabases(ctx, dir, postgres)
	if err != nil {
		return end, err
	}
	defer func() { err = errors.Join(err, d.remove(context.WithoutCancel(ctx))) }()
	b, err := startBroker(ctx, dir)
	if err != nil {
		return end, err
	}
	defer b.stop()
	st := newStory(ctx, out)
	defer func() { err = errors.Join(err, st.killAll()) }()
	if err := st.tellAll(b, d); err != nil {
		return end, err
	}
	if end, err = lookAtTheEnd(ctx, b, d, st.spans()); err != nil {
		return end, err
	}
	end.print(out, d)
	return end, nil
}
