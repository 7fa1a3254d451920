package measure

import (
	"context"
	"errors"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/child"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/server"
)

// servicesRate is how many messages a second one service produces for another.
const servicesRate = 1000

// Services measures the time from a commit in one service to the handler in another, in
// milliseconds, while single messages are produced at a steady 1,000 a second. Each service has a
// database. This process produces, another one relays, woken by package notify, and a third one
// receives and consumes.
func (b *Bench) Services(ctx context.Context, over *broker.JetStream, messages int) (latencies []float64, err error) {
	messages += warmUp
	err = b.placed(ctx, over, func(here *run, place broker.Place) error {
		at, err := over.Subscription(here.ctx, place.Address, "services")
		if err != nil {
			return err
		}
		return b.fresh(here.ctx, func(there *run) error {
			latencies, err = services(here, there, at, messages)
			return errors.Join(err, here.checkPlace(place, newTally(messages, 1)))
		})
	})
	return latencies, err
}

// services has one service send messages to another.
func services(here, there *run, at broker.Address, messages int) (latencies []float64, err error) {
	sender, err := contender.ByName(contender.NameOursRelay)
	if err != nil {
		return nil, err
	}
	receiver, err := contender.ByName(contender.NameOursReceive)
	if err != nil {
		return nil, err
	}
	work := contender.Work{Handle: func(contender.Signup) {}, Place: at}
	err = there.with(receiver, work, func(receiving contender.System) error {
		return here.with(sender, work, func(sending contender.System) error {
			consumer, err := there.spawn(1, child.Request{Contender: receiver.Name, DSN: there.dsn, Record: true, Place: at})
			if err != nil {
				return err
			}
			relay, err := here.spawn(1, child.Request{Contender: sender.Name, DSN: here.dsn, Place: at})
			if err != nil {
				_, finished := consumer.finish()
				return errors.Join(err, finished)
			}
			latencies, err = transmit(here, there, sending, receiving, relay, consumer, messages)
			return errors.Join(err, sending.Verify(here.ctx), receiving.Verify(there.ctx))
		})
	})
	return latencies, err
}

// transmit produces in one service, and waits until the other has handled all.
func transmit(here, there *run, sending, receiving contender.System, relay, consumer children, messages int) ([]float64, error) {
	err := errors.Join(consumer.each((*child.Process).Go), relay.each((*child.Process).Go))
	var commits []int64
	if err == nil {
		commits, err = here.trickle(sending, messages, servicesRate)
	}
	if err == nil {
		err = here.settled(sending)
	}
	_, ended := relay.finish()
	if err = errors.Join(err, ended); err == nil {
		err = there.until("records received", messages, func() (int, error) { return server.Count(there.ctx, there.dsn, "inbox_messages") })
	}
	if err == nil {
		err = there.settled(receiving)
	}
	found, ended := consumer.finish()
	if err = errors.Join(err, ended, checkRuns(int64(messages), int64(messages), found.Handled, found.Sum)); err != nil {
		return nil, err
	}
	starts := make([]int64, messages)
	for _, s := range found.Starts {
		starts[s.ID] = s.At
	}
	return between(commits, starts), nil
}
