package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// PublisherConfig configures a [Publisher].
type PublisherConfig struct {
	// Timeout is how long the streams have to answer for a batch. While the client reconnects to
	// servers that hang it lets nobody in: nats.FlusherTimeout and nats.Timeout of the connection,
	// a second each with Options, may come on top. Defaults to 5 s.
	Timeout time.Duration
}

// Publisher publishes records to JetStream: Destination is the subject. It is safe for concurrent
// use, and has nothing to close.
type Publisher struct {
	nc      *nats.Conn
	timeout time.Duration
}

// NewPublisher makes a Publisher on a connection, which stays the application's. It fails if the
// connection lacks what [Options] sets, or its server is too old.
func NewPublisher(nc *nats.Conn, config PublisherConfig) (*Publisher, error) {
	err := checkConnection(nc)
	if config.Timeout < 0 {
		err = errors.Join(err, fmt.Errorf("nats: PublisherConfig.Timeout is %s, it must not be negative", config.Timeout))
	}
	if err != nil {
		return nil, err
	}
	if config.Timeout == 0 {
		config.Timeout = 5 * time.Second
	}
	return &Publisher{nc: nc, timeout: config.Timeout}, nil
}

// Publish implements [relay.Publisher]: it sends the whole batch, and then waits for the streams'
// answers. A subject that no stream has is relay.ErrNoDestination, and so is a stream that is full
// and discards what is new; a record that is larger than the server or the stream allows, headers
// included, is relay.ErrRefused. It returns as soon as the connection breaks. Where somebody but
// no stream listens on a subject nobody answers, which looks like a server that is away.
func (p *Publisher) Publish(ctx context.Context, records []relay.Record) []error {
	if len(records) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("no answer within %s", p.timeout))
	defer cancel()
	b := &batch{errs: make([]error, len(records)), open: make([]bool, len(records))}
	changed := p.nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer p.nc.RemoveStatusListener(changed)
	if !p.nc.IsConnected() {
		return slices.Repeat([]error{unavailable("publish", p.nc, fmt.Errorf("the connection is %s", strings.ToLower(p.nc.Status().String())))}, len(records))
	}
	inbox := p.nc.NewInbox()
	answers := make(chan *nats.Msg, len(records)) // one for each, so that none is dropped
	sub, err := p.nc.ChanSubscribe(inbox+".*", answers)
	if err != nil {
		return slices.Repeat([]error{unavailable("publish", p.nc, err)}, len(records))
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only once the connection is closed
	for i, record := range records {
		err := ctx.Err()
		if err == nil {
			err = p.nc.PublishMsg(message(record, inbox+"."+strconv.Itoa(i)))
		}
		if err == nil {
			b.open[i] = true
			b.left++
			continue
		}
		b.errs[i] = p.sendError(ctx, record, err)
	}
	p.collect(ctx, b, answers, changed)
	return b.errs
}

// batch is what is known of the records of a Publish.
type batch struct {
	errs []error
	open []bool // sent, and not answered
	left int    // how many are open
}

// collect waits for the answers.
func (p *Publisher) collect(ctx context.Context, b *batch, answers <-chan *nats.Msg, changed <-chan nats.Status) {
	for b.left > 0 {
		select {
		case msg := <-answers:
			i, err := strconv.Atoi(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:])
			if err != nil || i < 0 || i >= len(b.open) || !b.open[i] {
				continue // of nobody here
			}
			b.open[i] = false
			b.left--
			b.errs[i] = p.answer(msg)
		case status := <-changed:
			b.giveUp(unavailable("publish", p.nc, fmt.Errorf("the connection is %s", strings.ToLower(status.String()))))
		case <-ctx.Done():
			b.giveUp(unavailable("publish", p.nc, context.Cause(ctx)))
		}
	}
}

// giveUp gives an error to what is still open.
func (b *batch) giveUp(err error) {
	for i := range b.open {
		if b.open[i] {
			b.open[i], b.errs[i] = false, err
		}
	}
	b.left = 0
}

// sendError classifies what the client says of a record that it has not sent.
func (p *Publisher) sendError(ctx context.Context, record relay.Record, err error) error {
	switch {
	case ctx.Err() != nil:
		return unavailable("publish", p.nc, context.Cause(ctx))
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("nats: publish to %.200q: %d bytes and the headers are more than the server's max_payload of %d: %w",
			record.Destination, len(record.Body), p.nc.MaxPayload(), relay.ErrRefused)
	case errors.Is(err, nats.ErrBadSubject):
		return fmt.Errorf("nats: publish to %.200q: a subject is not empty, and has no spaces: %w", record.Destination, relay.ErrRefused)
	}
	return unavailable("publish", p.nc, err)
}

// Codes of JetStream's errors, of which its client does not name all.
const (
	codeAccountLimits   = 10002
	codeMemoryFull      = 10028
	codeStorageFull     = 10047
	codeMessageTooLarge = 10054
	codeStoreFailed     = 10077
	codeHeadersTooLarge = 10097
	codeSealed          = 10109
	codeIDInProcess     = 10158
)

// answer classifies what came back for a record.
func (p *Publisher) answer(msg *nats.Msg) error {
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
		if !p.nc.IsConnected() {
			return unavailable("publish", p.nc, nats.ErrNoResponders)
		}
		return fmt.Errorf("nats: publish: no stream has the subject, or its leader is being elected: %w", relay.ErrNoDestination)
	}
	var ack struct {
		Stream string              `json:"stream"`
		Error  *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &ack); err != nil || ack.Error == nil && ack.Stream == "" {
		return fmt.Errorf("nats: publish: %.100q is not the answer of a stream", msg.Data)
	}
	if ack.Error == nil {
		return nil
	}
	return fmt.Errorf("nats: publish: %s (%d): %w", ack.Error.Description, ack.Error.ErrorCode, class(ack.Error))
}

// class is what an error of JetStream is to a relay.
func class(err *jetstream.APIError) error {
	full := strings.HasPrefix(err.Description, "maximum ")
	switch code := int(err.ErrorCode); {
	case code == codeMessageTooLarge, code == codeHeadersTooLarge:
		return relay.ErrRefused
	case code == codeStoreFailed && full, code == codeAccountLimits, code == codeMemoryFull, code == codeStorageFull, code == codeSealed:
		return relay.ErrNoDestination
	case code == codeIDInProcess, err.Code == 503:
		return relay.ErrUnavailable
	}
	return errAttempt
}

// errAttempt is an error of none of the relay's classes.
var errAttempt = errors.New("the stream did not take it")

// unavailable wraps err, and says what the connection has last complained of: a permission that is
// missing shows nowhere else.
func unavailable(operation string, nc *nats.Conn, err error) error {
	if last := nc.LastError(); last != nil && !errors.Is(err, last) {
		return fmt.Errorf("nats: %s: %w (the connection says: %v): %w", operation, err, last, relay.ErrUnavailable)
	}
	return fmt.Errorf("nats: %s: %w: %w", operation, err, relay.ErrUnavailable)
}
