//go:build newer

package main

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

const release = "newer"

type order struct {
	ID   string `json:"id"`
	Note string `json:"note"`
}

type opened struct {
	ID     string `json:"id"`
	Branch string `json:"branch"`
}

type refund struct {
	ID string `json:"id"`
}

type deposited struct {
	ID string `json:"id"`
}

func (refund) PayloadType() string    { return "order.refunded" }
func (deposited) PayloadType() string { return "account.deposited" }

func additions(p *program) added {
	repay := func(ctx context.Context, tx bun.Tx, r refund) error { return p.done(ctx, tx, "repay", r.ID) }
	return added{
		consumers: []bus.Consumer{outbox.ConsumeTx("repay", repay)},
		audited:   []string{refund{}.PayloadType()},
		types:     []eventlog.Type{eventlog.Event[deposited]()},
		routes:    []relay.Route{relay.To[deposited]("accounts")},
		accepts:   []inbox.Option{inbox.Accept[refund]()},
	}
}

func made(id string) (messages, events []bus.Payload) {
	return []bus.Payload{order{id, "fragile"}, refund{id}}, []bus.Payload{opened{id, "north"}, deposited{id}}
}

// targets are of operations that today's release does not know: a field of a filter, and a kind. The test adds both to the library.
func targets() map[ops.Action]ops.Target {
	return map[ops.Action]ops.Target{
		ops.Cancel: {Pending: &admin.Filter{Consumer: "wait", Named: "one"}},
		"archive":  {Pending: &admin.Filter{Consumer: "archived"}},
	}
}
