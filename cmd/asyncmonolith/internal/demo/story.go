package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // for systems without time zones

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Who looks after the shop.
const (
	ada   = "ada@shop.example"
	grace = "grace@shop.example"
)

func (d *Demo) session(name string) *operator.Session {
	return operator.As(d.service, ops.Principal{Name: name, Role: ops.Administrator})
}

// open is the morning: what has been ordered, with everything that will go wrong.
func (d *Demo) open(ctx context.Context) error {
	d.shop.searchFull.Store(14)
	if err := d.session(ada).Consumers().Pause(ctx, catalogue, "supplier sends prices in the wrong currency, fixed on Thursday"); err != nil {
		return err
	}
	var items []outbox.Item
	for page := range 260 {
		items = append(items, outbox.Item{Payload: catalogueReceived{Supplier: "northwind", Page: page + 1}})
	}
	for i := range 220 {
		p := paymentDue{Order: 1000 + i, Amount: fmt.Sprintf("%d.%02d", 5+i%90, i%100), Card: "4242"}
		switch {
		case i%5 < 2:
			p.Amount = fmt.Sprintf("%d,%02d", 5+i%90, i%100) // as the new version of the till writes them
		case i%18 == 3:
			p.Card = "4000"
		}
		items = append(items, outbox.Item{Payload: p})
	}
	for i := range 300 {
		items = append(items, outbox.Item{Payload: productChanged{Product: i}})
	}
	for i := range 60 {
		order, code := 1000+i%12, "1010"
		if i == 3 || i == 19 {
			code = "00000"
		}
		items = append(
			items,
			outbox.Item{
				Payload: parcelPacked{Order: order, PostalCode: code},
				Options: []outbox.Option{outbox.OrderingKey(fmt.Sprintf("order-%d", order))},
			},
		)
	}
	for range 330 {
		items = append(items, d.order())
	}
	if _, err := d.producer.ProduceMany(ctx, d.db, items...); err != nil {
		return err
	}
	if err := d.fax(ctx); err != nil {
		return err
	}
	if err := d.book(ctx, 600); err != nil {
		return err
	}
	_, err := d.sales.CatchUp(ctx)
	return err
}

// order is the next one that is placed.
func (d *Demo) order() outbox.Item {
	d.orders++
	return outbox.Item{Payload: orderPlaced{Order: 1000 + d.orders, Email: fmt.Sprintf("customer%d@mail.example", d.orders)},
		Options: []outbox.Option{outbox.Header("tenant", []string{"wien", "graz", "linz"}[d.orders%3])}}
}

// fax produces for a consumer that no program has any more.
func (d *Demo) fax(ctx context.Context) error {
	registry, err := bus.NewRegistry(bus.Declare[faxWanted](faxes))
	if err != nil {
		return err
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		return err
	}
	_, err = producer.ProduceMany(ctx, d.db, outbox.Item{Payload: faxWanted{Order: 1001}}, outbox.Item{Payload: faxWanted{Order: 1044}})
	return err
}

// book appends events to accounts.
func (d *Demo) book(ctx context.Context, n int) error {
	return d.log.RunInTx(ctx, d.db, func(ctx context.Context, tx bun.Tx) error {
		writes := make([]eventlog.Write, 20)
		for i := range writes {
			writes[i] = eventlog.Write{Stream: fmt.Sprintf("account-%d", i+1), Expected: eventlog.AnyVersion}
			for j := range n / len(writes) {
				e := amountBooked{Cents: 100 + 7*j, Currency: "EUR"}
				if i%7 == 2 && j == 4 {
					e.Currency = "XBT"
				}
				writes[i].Events = append(writes[i].Events, e)
			}
		}
		_, err := d.log.AppendAll(ctx, tx, writes...)
		return err
	})
}

// story is what happens while the shop is open.
func (d *Demo) story(ctx, running context.Context) error {
	if err := d.plan(ctx); err != nil {
		return err
	}
	if err := until(ctx, running, d.settled); err != nil {
		return err
	}
	if err := d.dressUp(ctx); err != nil {
		return err
	}
	return d.operate(ctx, running)
}

// plan makes schedules, and has some fire at once.
func (d *Demo) plan(ctx context.Context) error {
	vienna, err := time.LoadLocation("Europe/Vienna")
	if err != nil {
		return err
	}
	change := nextChange(time.Now().In(vienna))
	set := []schedule.Spec{
		{Name: "close the day", Payload: dayClosed{Shop: "wien"}, Expression: "0 55 23 * * *", Zone: "Europe/Vienna"},
		{
			Name: "count the stock", Payload: dayClosed{Shop: "stock"},
			Expression: fmt.Sprintf("0 30 2 %d-%d %d *", change.Day()-3, change.Day(), change.Month()), Zone: "Europe/Vienna",
		},
		{Name: "prices every quarter", Payload: dayClosed{Shop: "prices"}, Expression: "0 */15 * * * *", Zone: "UTC"},
		{Name: "weekly report", Payload: reportDue{Template: "weekly"}, Expression: "0 0 7 * * MON", Zone: "Europe/Vienna"},
		{Name: "summer sale", Payload: dayClosed{Shop: "sale"}, Expression: "0 0 9 1 6 *", Zone: "Europe/Vienna"},
	}
	if err := d.scheduler.Sync(ctx, d.db, "shop", set...); err != nil {
		return err
	}
	all, _, err := d.scheduler.List(ctx, d.db, schedule.Filter{}, admin.Page{})
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Name == "summer sale" {
			err = d.session(grace).Schedules().Pause(ctx, "it is over", s.ID)
		} else {
			err = d.scheduler.Trigger(ctx, d.db, s.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nextChange is the day of the next change between standard and daylight saving time: in the night to
// it. The whole range of days before it is in one month.
func nextChange(t time.Time) time.Time {
	day := time.Date(t.Year(), t.Month(), t.Day(), 12, 0, 0, 0, t.Location())
	for range 366 {
		next := day.AddDate(0, 0, 1)
		if _, was := day.Zone(); next.Day() > 3 {
			if _, is := next.Zone(); is != was {
				return next
			}
		}
		day = next
	}
	return day
}

// settled tells whether all that was to happen at first has.
func (d *Demo) settled(ctx context.Context) (bool, error) {
	queues, err := d.admin.Queues(ctx, d.db) // an overview may be seconds old
	if err != nil {
		return false, err
	}
	for _, q := range queues {
		if q.Consumer != catalogue && q.Consumer != faxes && q.Ready+q.Leased > q.BlockedKeys*10 {
			return false, nil
		}
	}
	failures, err := d.failures(ctx)
	if err != nil {
		return false, err
	}
	processes, err := d.processes(ctx)
	return len(failures) >= 7 && len(processes) >= workers+2, err
}

// operate is what people have done about it.
func (d *Demo) operate(ctx, running context.Context) error {
	d.shop.mailBack.Store(true)
	groups, err := insist(ctx, func(ctx context.Context) ([]poison.Group, error) {
		groups, _, err := d.session(ada).Poisoned().Groups(ctx, "")
		return groups, err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(groups, func(a, b poison.Group) int { // so that the ids are the same each time
		return cmp.Or(cmp.Compare(b.Consumer, a.Consumer), cmp.Compare(a.Messages, b.Messages))
	})
	wanted := make(map[int64]ops.OperationState)
	for _, g := range groups {
		var o ops.Operation
		target := ops.Target{Poisoned: &poison.Filter{Consumer: g.Consumer, Fingerprint: g.Fingerprint}}
		switch {
		case g.Consumer == receipts && g.Messages > 20:
			o, err = d.operation(ctx, ada, target, ops.StartOptions{Rate: 2, Canary: -1, Reason: "the mail server is back"})
			wanted[o.ID] = ops.Running
		case g.Consumer == charges && g.Messages > 20: // which is not mended
			o, err = d.operation(ctx, grace, target, ops.StartOptions{Reason: "try again after the rollback of the till"})
			wanted[o.ID] = ops.Paused
		case g.Consumer == charges:
			_, err = d.session(grace).Operations().Plan(ctx, ops.Discard, target)
		case g.Consumer == invoices:
			if o, err = d.session(ada).Operations().Plan(ctx, ops.Requeue, target); err == nil {
				_, err = d.session(ada).Operations().Undo(ctx, "", o.ID)
			}
		}
		if err != nil {
			return err
		}
	}
	return until(ctx, running, func(ctx context.Context) (bool, error) {
		for id, state := range wanted {
			if o, err := d.session(ada).Operations().Get(ctx, id); err != nil || o.State != state && o.FinishedAt.IsZero() {
				return false, err
			}
		}
		return true, nil
	})
}

// operation starts to requeue what has failed.
func (d *Demo) operation(ctx context.Context, who string, target ops.Target, terms ops.StartOptions) (ops.Operation, error) {
	planned, err := insist(ctx, func(ctx context.Context) (ops.Operation, error) {
		return d.session(who).Operations().Plan(ctx, ops.Requeue, target)
	})
	if err != nil {
		return planned, err
	}
	return d.session(who).Operations().Start(ctx, planned.ID, terms)
}

// aftermath is what waits now, and what people remember of the hours before.
func (d *Demo) aftermath(ctx context.Context, live bool) error {
	var items []outbox.Item
	for range 35 {
		items = append(items, d.order())
	}
	for i := range 50 {
		items = append(
			items,
			outbox.Item{Payload: productChanged{Product: 1000 + i}, Options: []outbox.Option{outbox.Delay(time.Duration(i+5) * time.Minute)}},
		)
	}
	if _, err := d.producer.ProduceMany(ctx, d.db, items...); err != nil {
		return err
	}
	if err := d.book(ctx, 400); err != nil {
		return err
	}
	if !live {
		if _, err := d.balances.CatchUp(ctx); err != nil {
			return err
		}
	}
	return d.remember(ctx, live)
}

// goOn has customers come in for a while; less than 0 stands for as long as the shop is open.
func (d *Demo) goOn(running context.Context, stay time.Duration) error {
	if stay > 0 {
		var cancel context.CancelFunc
		running, cancel = context.WithTimeout(running, stay)
		defer cancel()
	}
	d.shop.unhurried.Store(true)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-running.Done():
			return nil
		case <-tick.C:
		}
		items := []outbox.Item{d.order()}
		for i := range 3 + n%9 {
			items = append(items, outbox.Item{Payload: productChanged{Product: 5000 + 13*n + i}})
		}
		p := paymentDue{Order: 3000 + n, Amount: "19.90", Card: "4242"}
		if n%9 == 0 {
			p.Amount = "19,90"
		}
		items = append(
			items,
			outbox.Item{Payload: p},
			outbox.Item{
				Payload: parcelPacked{Order: 3000 + n, PostalCode: "1010"},
				Options: []outbox.Option{outbox.OrderingKey(fmt.Sprintf("order-%d", 3000+n))},
			},
		)
		if _, err := d.producer.ProduceMany(running, d.db, items...); err != nil && running.Err() == nil {
			return err
		}
	}
}
