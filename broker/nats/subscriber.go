package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/internal/adapter"
)

// SubscriberConfig configures a [Subscriber].
type SubscriberConfig struct {
	// Stream is the name of the stream. Required.
	Stream string
	// Domain is the JetStream domain of the stream, if the connection's server belongs to another
	// one, such as a leaf node. Defaults to the server's own.
	Domain string
	// Consumer is the name of a durable pull consumer of the stream. It must exist, with the
	// acknowledgement policy "explicit", without a delivery limit, and not with headers only.
	// Several subscribers may share one. Required.
	Consumer string
	// Batch is the maximum number of records in one call of fn. Defaults to 256.
	Batch int
	// Ordered delivers messages in the order of the stream, even if some are redelivered, for
	// instance after a kill. Use it for inbox.AppendToLog, with one subscriber of a consumer: two
	// delay each other by several times its AckWait. After a kill it waits for AckWait. Defaults to
	// false.
	Ordered bool
}

// Subscriber receives the messages of a durable pull consumer. It is safe for concurrent use: each
// Subscribe receives other messages.
type Subscriber struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	config SubscriberConfig
	said   *complaints
	away   adapter.Outage
}

// OnOutage implements broker.OutageNotifier. A server is unavailable if it sent nothing for 4 s, or
// does not answer a request for the consumer's state.
func (s *Subscriber) OnOutage(f func(err error)) { s.away.OnOutage(f) }

const (
	maxBatch = 10_000
	// How long one request for messages lasts, and how often the server says meanwhile that it is
	// still there.
	requestExpires = 10 * time.Second
	heartbeat      = 2 * time.Second
)

// NewSubscriber makes a Subscriber. It does not close the connection. It returns an error if the
// connection lacks the settings of [Options], or its server is too old. It does not check the
// consumer: Subscribe does.
func NewSubscriber(nc *nats.Conn, config SubscriberConfig) (*Subscriber, error) {
	errs := []error{checkConnection(nc), checkDomain("SubscriberConfig", config.Domain)}
	if config.Batch == 0 {
		config.Batch = 256
	}
	if config.Stream == "" {
		errs = append(errs, errors.New("nats: SubscriberConfig.Stream is required"))
	}
	if config.Consumer == "" {
		errs = append(errs, errors.New("nats: SubscriberConfig.Consumer is required"))
	}
	if config.Batch < 1 || config.Batch > maxBatch {
		errs = append(errs, fmt.Errorf("nats: SubscriberConfig.Batch %d: 1 to %d is allowed", config.Batch, maxBatch))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	js, err := jetstream.NewWithAPIPrefix(nc, apiPrefix(config.Domain))
	if err != nil {
		return nil, fmt.Errorf("nats: new subscriber: %w", err)
	}
	return &Subscriber{nc: nc, js: js, config: config, said: listenTo(nc)}, nil
}

// Subscribe implements broker.Subscriber. It acknowledges messages after fn, and extends their
// acknowledgement deadline while fn runs. After an error of fn it waits, first 100 ms and at most 5
// s; the messages may then be delivered to another subscriber of the consumer. It returns an error
// if the consumer does not exist, is deleted, or could lose messages.
func (s *Subscriber) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	ackWait, err := s.lookUp(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	p, err := s.newPull()
	if err != nil {
		return s.ended(err)
	}
	defer p.close()
	failures := 0
	o := &sorter{Subscriber: s, ackWait: ackWait, held: make(map[uint64]*nats.Msg)}
	defer o.giveBack()
	for ctx.Err() == nil {
		waiting, cancel := o.wait(ctx)
		msgs, err := p.next(waiting)
		cancel()
		if errors.Is(err, errLookAgain) {
			if _, err := s.lookUp(ctx); err != nil {
				return err
			}
			adapter.Pause(ctx, adapter.FirstPause)
			continue
		}
		if err != nil {
			return s.ended(err)
		}
		if s.config.Ordered {
			msgs = o.add(ctx, msgs)
		}
		if len(msgs) == 0 {
			continue
		}
		if s.handAll(ctx, msgs, ackWait, fn) != nil {
			o.sure = false
			failures++
			adapter.PauseAfter(ctx, failures)
		} else {
			failures = 0
		}
	}
	s.flush(ctx)
	return nil
}

// ended is what Subscribe returns when it cannot go on.
func (s *Subscriber) ended(err error) error {
	return fmt.Errorf("nats: subscribe to consumer %s of stream %s: %w", s.config.Consumer, s.config.Stream, s.said.with(err))
}

// handAll gives messages to fn, batch after batch, and those behind one that failed back.
func (s *Subscriber) handAll(
	ctx context.Context, msgs []*nats.Msg, ackWait time.Duration, fn func(context.Context, []broker.Record) error,
) error {
	for part := range slices.Chunk(msgs, s.config.Batch) {
		msgs = msgs[len(part):]
		if err := s.hand(ctx, part, ackWait, fn); err != nil {
			s.tell(msgs, "-NAK")
			return err
		}
	}
	return nil
}

// hand gives a batch to fn, and sends the server what it returns.
func (s *Subscriber) hand(
	ctx context.Context, msgs []*nats.Msg, ackWait time.Duration, fn func(context.Context, []broker.Record) error,
) error {
	records := make([]broker.Record, len(msgs))
	for i, msg := range msgs {
		records[i] = record(msg)
	}
	returned, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		ticker := time.NewTicker(max(ackWait/3, time.Millisecond))
		defer ticker.Stop()
		for {
			select {
			case <-returned:
				return
			case <-ticker.C:
				s.tell(msgs, "+WPI") // work in progress
			}
		}
	}()
	err := fn(ctx, records)
	close(returned)
	<-told
	if err != nil {
		s.tell(msgs, "-NAK")
	} else {
		s.tell(msgs, "+ACK")
	}
	return err
}

// tell answers for messages. What does not arrive is as if it had not been said: they come again.
func (s *Subscriber) tell(msgs []*nats.Msg, what string) {
	for _, msg := range msgs {
		_ = s.nc.Publish(msg.Reply, []byte(what))
	}
}

// flush gives the last acknowledgements a second to leave.
func (s *Subscriber) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.nc.FlushWithContext(ctx)
}

// lookUp looks at the consumer, until the server answers, and says how long the server waits for an
// acknowledgement.
func (s *Subscriber) lookUp(ctx context.Context) (ackWait time.Duration, err error) {
	for failures := 1; ctx.Err() == nil; failures++ {
		ackWait, err = s.lookOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return 0, nil
		case err == nil:
			s.away.Note(nil)
			return ackWait, nil
		case isFinal(err), isRefused(s.nc):
			return 0, s.ended(err)
		}
		s.away.Note(s.said.with(err))
		adapter.PauseAfter(ctx, failures)
	}
	return 0, nil
}

// lookTimeout is how long a server has to say what it knows of the consumer.
const lookTimeout = 5 * time.Second

func (s *Subscriber) lookOnce(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s.said.look()
	consumer, err := s.js.Consumer(ctx, s.config.Stream, s.config.Consumer)
	if err != nil {
		return 0, err
	}
	config := consumer.CachedInfo().Config
	if config.AckPolicy != jetstream.AckExplicitPolicy {
		return 0, fmt.Errorf("%w: its acknowledgement policy is %s, want explicit", errUnfit, config.AckPolicy)
	}
	if config.MaxDeliver > 0 {
		return 0, fmt.Errorf("%w: it drops a message after %d deliveries, want max_deliver -1", errUnfit, config.MaxDeliver)
	}
	if config.HeadersOnly {
		return 0, fmt.Errorf("%w: it delivers headers without bodies, want headers_only false", errUnfit)
	}
	return config.AckWait, nil
}

// errUnfit: a consumer that could lose messages.
var errUnfit = errors.New("the consumer is not fit for a relay")

// isRefused reports whether the server does not accept the credentials: that is to be said, although a
// later attempt may succeed.
func isRefused(nc *nats.Conn) bool {
	if nc.IsConnected() {
		return false
	}
	said := nc.LastError()
	return slices.ContainsFunc([]error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired},
		func(refusal error) bool { return errors.Is(said, refusal) })
}

// isFinal reports whether an error stays when one tries again.
func isFinal(err error) bool {
	for _, final := range []error{
		jetstream.ErrConsumerNotFound, jetstream.ErrStreamNotFound, jetstream.ErrNotPullConsumer, jetstream.ErrInvalidConsumerName,
		jetstream.ErrInvalidStreamName, jetstream.ErrJetStreamNotEnabledForAccount, nats.ErrConnectionClosed, errUnfit,
	} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}
