package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/asyncmonolith/asyncmonolith-go/relay"
	"github.com/asyncmonolith/asyncmonolith-go/relay/internal/adapter"
)

// PublisherConfig configures a [Publisher].
type PublisherConfig struct {
	// URLs are those of the cluster's nodes, "amqp://user:password@host:5672/vhost", tried in turn.
	// Required.
	URLs []string
	// TLS is for URLs of amqps. Defaults to that of the system.
	TLS *tls.Config
	// Exchange is what records are published to. Defaults to the default exchange, for which a
	// routing key is the name of a queue.
	Exchange string
	// Timeout is how long the broker has to confirm a batch. Defaults to 5 s.
	Timeout time.Duration
}

// Publisher publishes records to an exchange: Destination is the routing key. It is safe for
// concurrent use. It connects when it is used, again whenever the connection is gone. Close it.
type Publisher struct {
	config PublisherConfig
	state  chan *publishing // holds the one there is: who has it, has the lock
	back   *adapter.Reconnect
}

// publishing is the connection of a Publisher, and its channels that nobody uses.
type publishing struct {
	link   *link
	free   []*lane
	closed bool
}

// NewPublisher makes a Publisher.
func NewPublisher(config PublisherConfig) (*Publisher, error) {
	errs := []error{checkURLs("PublisherConfig.URLs", config.URLs)}
	if config.Timeout < 0 {
		errs = append(errs, fmt.Errorf("rabbitmq: PublisherConfig.Timeout is %s, it must not be negative", config.Timeout))
	}
	if len(config.Exchange) > maxShort {
		errs = append(errs, fmt.Errorf("rabbitmq: PublisherConfig.Exchange has %d bytes, at most %d are allowed", len(config.Exchange), maxShort))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if config.Timeout == 0 {
		config.Timeout = 5 * time.Second
	}
	p := &Publisher{config: config, state: make(chan *publishing, 1)} // one: it is a lock
	p.state <- &publishing{}
	p.back = adapter.NewReconnect(p.ping)
	return p, nil
}

// OnReconnect implements [relay.Reconnecter]: while the broker is away it connects again and again,
// and a broker that blocks publishers is away.
func (p *Publisher) OnReconnect(f func()) { p.back.OnReconnect(f) }

// ping reports whether there is a channel, or one can be had.
func (p *Publisher) ping(ctx context.Context) error {
	lane, err := p.take(ctx)
	if err == nil {
		p.giveBack(ctx, lane)
	}
	return err
}

// Close closes the connection. What is being published fails, and so does what comes later.
func (p *Publisher) Close() {
	p.back.Close()
	s := <-p.state
	s.closed = true
	if s.link != nil {
		s.link.close()
	}
	s.link, s.free = nil, nil
	p.state <- s
}

// Publish implements [relay.Publisher]. A record that no queue gets is relay.ErrNoDestination, and so
// is one for which the exchange does not exist, or that a queue rejects because it is full; one that
// is larger than the broker or AMQP allows is relay.ErrRefused. While the broker blocks publishers,
// for want of memory or disk, it is relay.ErrUnavailable at once. Where a deadline ends, the connection is
// closed: nothing else ends what is on its way.
func (p *Publisher) Publish(ctx context.Context, records []relay.Record) []error {
	if len(records) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.config.Timeout, fmt.Errorf("no confirmation within %s", p.config.Timeout))
	defer cancel()
	errs := p.attempt(ctx, records)
	for i, err := range errs {
		// The broker closes the channel because of one record, and does not say which.
		if errors.Is(err, errPrecondition) && len(records) > 1 {
			errs[i] = p.attempt(ctx, records[i:i+1])[0]
		}
		if errors.Is(errs[i], errPrecondition) {
			errs[i] = fmt.Errorf("%w: %w", errs[i], relay.ErrRefused)
		}
	}
	p.back.Note(errs...)
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("rabbitmq: publish to %.200q: %w", records[i].Destination, err)
		}
	}
	return errs
}

// attempt publishes records on a channel that nobody else uses.
func (p *Publisher) attempt(ctx context.Context, records []relay.Record) []error {
	lane, err := p.take(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(records))
	}
	stop := context.AfterFunc(ctx, lane.link.cut)
	errs := lane.publish(ctx, p.config.Exchange, records)
	if lane.rejected {
		_ = lane.channel.Close() // the next one asks anew who leads the queue
	}
	if stop() {
		p.giveBack(ctx, lane)
	}
	return errs
}

// take returns a channel, and connects if there is no connection.
func (p *Publisher) take(ctx context.Context) (*lane, error) {
	var s *publishing
	select {
	case s = <-p.state:
		defer func() { p.state <- s }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil, unavailable(context.Cause(ctx))
	}
	if s.closed {
		return nil, unavailable(errors.New("the publisher is closed"))
	}
	if s.link != nil && s.link.conn.IsClosed() {
		s.link.close()
		s.link, s.free = nil, nil
	}
	if s.link == nil {
		l, err := dial(ctx, p.config.URLs, p.config.TLS)
		if err != nil {
			return nil, unavailable(err)
		}
		s.link = l
	}
	if _, reason := s.link.block(); reason != "" {
		return nil, unavailable(errors.New(reason))
	}
	for len(s.free) > 0 {
		last := s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		if !last.channel.IsClosed() {
			return last, nil
		}
	}
	stop := context.AfterFunc(ctx, s.link.cut)
	defer stop()
	opened, err := openLane(s.link)
	if err != nil {
		return nil, unavailable(err)
	}
	return opened, nil
}

// giveBack lets others have the channel, if it is still good. While somebody connects anew it waits no
// longer than the batch may take: a channel of the connection before is good for nobody.
func (p *Publisher) giveBack(ctx context.Context, l *lane) {
	var s *publishing
	select {
	case s = <-p.state:
	case <-ctx.Done():
		return
	}
	if s.link == l.link && !l.left && !l.channel.IsClosed() {
		s.free = append(s.free, l)
	}
	p.state <- s
}

// inFlight is how many records of a batch wait for their confirmations at once.
const inFlight = 256

// lane is a channel of AMQP that confirms.
type lane struct {
	link    *link
	channel *amqp.Channel
	returns chan amqp.Return
	ended   chan *amqp.Error
	left    bool // records were left on their way: nobody may use it any more
	// rejected: a queue has rejected records. One that has lost its leader may do so on this channel for
	// ever, also when it has another.
	rejected bool
}

func openLane(l *link) (*lane, error) {
	channel, err := l.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	if err := channel.Confirm(false); err != nil {
		return nil, fmt.Errorf("open a channel that confirms: %w", err)
	}
	return &lane{
		link:    l,
		channel: channel,
		returns: channel.NotifyReturn(make(chan amqp.Return, inFlight)), // all may come back before one is read
		ended:   channel.NotifyClose(make(chan *amqp.Error, 1)),         // one: the client does not wait for us
	}, nil
}

// publish publishes records in parts, and says what became of each.
func (l *lane) publish(ctx context.Context, exchange string, records []relay.Record) (errs []error) {
	for part := range slices.Chunk(records, inFlight) {
		errs = append(errs, l.part(ctx, exchange, part)...)
	}
	return errs
}

func (l *lane) part(ctx context.Context, exchange string, records []relay.Record) []error {
	errs := make([]error, len(records))
	confirms := make([]*amqp.DeferredConfirmation, len(records))
	for i, record := range records {
		m, err := message(record, l.link.conn.Config.FrameSize)
		if err != nil {
			errs[i] = fmt.Errorf("%w: %w", err, relay.ErrRefused)
			continue
		}
		if confirms[i], errs[i] = l.channel.PublishWithDeferredConfirm(exchange, record.Destination, true, false, m); errs[i] != nil {
			errs[i] = unavailable(errs[i])
		}
	}
	blocked, _ := l.link.block()
	for _, confirm := range confirms {
		if confirm == nil {
			continue
		}
		select {
		case <-confirm.Done():
		case <-blocked:
			l.left = true
		case <-ctx.Done():
		}
	}
	returned := l.returned() // the broker returns a record before it confirms it
	var lost error           // what became of those that were not confirmed
	for i, confirm := range confirms {
		switch {
		case confirm != nil && confirm.Acked() && !returned[[2]string{records[i].Destination, shortID(records[i])}]:
		case confirm != nil && confirm.Acked():
			errs[i] = fmt.Errorf("no queue is bound for it: %w", relay.ErrNoDestination)
		case confirm != nil || errors.Is(errs[i], relay.ErrUnavailable):
			if lost == nil {
				lost = l.lost(ctx)
			}
			errs[i] = lost
		}
	}
	return errs
}

// returned reads what came back: routing keys and message ids.
func (l *lane) returned() map[[2]string]bool {
	all := make(map[[2]string]bool)
	for {
		select {
		case r, ok := <-l.returns:
			if !ok {
				return all
			}
			all[[2]string{r.RoutingKey, r.MessageId}] = true
		default:
			return all
		}
	}
}

func shortID(record relay.Record) string {
	if len(record.ID) > maxShort {
		return ""
	}
	return record.ID
}

// errPrecondition: the broker has closed the channel since it will not have a record.
var errPrecondition = errors.New("the broker will not have it")

// lost says what became of records that were not confirmed.
func (l *lane) lost(ctx context.Context) error {
	if ctx.Err() != nil {
		return unavailable(context.Cause(ctx))
	}
	if l.left {
		return unavailable(errors.New("the broker blocks publishers"))
	}
	if !l.channel.IsClosed() {
		l.rejected = true
		return fmt.Errorf("a queue rejects it: %w", relay.ErrNoDestination)
	}
	select {
	case reason := <-l.ended:
		switch {
		case reason == nil:
		case reason.Code == amqp.NotFound, reason.Code == amqp.AccessRefused:
			return fmt.Errorf("%w: %w", reason, relay.ErrNoDestination)
		case reason.Code == amqp.PreconditionFailed, reason.Code == amqp.ContentTooLarge:
			return fmt.Errorf("%w: %w", reason, errPrecondition)
		default:
			return unavailable(reason)
		}
	case <-ctx.Done():
	}
	return unavailable(amqp.ErrClosed)
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", err, relay.ErrUnavailable) }
