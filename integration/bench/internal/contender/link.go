package contender

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	servers "github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/broker"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
	"github.com/asyncmonolith/asyncmonolith-go/broker/rabbitmq"
)

// maxBacklog is more than any measurement receives: room is no part of it.
const maxBacklog = 10_000_000

// link is what connects ours with a broker. The zero value is none.
type link struct {
	publisher broker.Publisher
	receiver  inbox.Receiver
	end       func()
}

func (l link) close() {
	if l.end != nil {
		l.end()
	}
}

// dial connects with default settings.
func dial(at servers.Address, v Variant) (l link, err error) {
	if !strings.HasPrefix(at.URLs[0], "nats:") {
		p, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: at.URLs})
		if err != nil {
			return link{}, err
		}
		return link{publisher: p, end: p.Close}, nil
	}
	nc, err := nats.Connect(strings.Join(at.URLs, ","), amnats.Options()...)
	if err != nil {
		return link{}, fmt.Errorf("connect to NATS: %w", err)
	}
	l = link{end: nc.Close}
	if l.publisher, err = amnats.NewPublisher(nc, amnats.PublisherConfig{}); err == nil && v.Receive {
		var sub broker.Subscriber
		sub, err = amnats.NewSubscriber(nc, amnats.SubscriberConfig{Stream: at.Name, Consumer: at.Subscription})
		l.receiver = inbox.NewReceiver("from-bench", sub, inbox.Accept[Signup](), inbox.MaxBacklog(maxBacklog))
	}
	if err != nil {
		l.close()
	}
	return l, err
}
