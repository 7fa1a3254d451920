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

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/internal/adapter"
)

// PublisherConfig configures a [Publisher].
type PublisherConfig struct {
	// Domain is the JetStream domain of the streams, if the connection's server belongs to another
	// one, such as a leaf node. Defaults to the server's own.
	Domain string
	// Timeout limits the wait for the acknowledgements of a batch. While the client reconnects to
	// servers that hang, it blocks its callers: nats.FlusherTimeout and nats.Timeout of the
	// connection, 1 s each with [Options], may be added. Defaults to 5 s.
	Timeout time.Duration
}

// Publisher publishes records to JetStream. A record's Destination is the subject. It is safe for
// concurrent use and needs no Close, since the application owns the connection. While its server is
// unavailable, a goroutine polls for it until it answers or the connection is closed.
type Publisher struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	timeout time.Duration
	said    *complaints
	back    *adapter.Reconnect
}

// NewPublisher makes a Publisher. It does not close the connection. It returns an error if the
// connection lacks the settings of [Options], or its server is too old.
func NewPublisher(nc *nats.Conn, config PublisherConfig) (*Publisher, error) {
	err := errors.Join(checkConnection(nc), checkDomain("PublisherConfig", config.Domain))
	if config.Timeout < 0 {
		err = errors.Join(err, fmt.Errorf("nats: PublisherConfig.Timeout %s: 0 or more is allowed", config.Timeout))
	}
	if err != nil {
		return nil, err
	}
	if config.Timeout == 0 {
		config.Timeout = 5 * time.Second
	}
	js, err := jetstream.NewWithAPIPrefix(nc, apiPrefix(config.Domain))
	if err != nil {
		return nil, fmt.Errorf("nats: new publisher: %w", err)
	}
	p := &Publisher{nc: nc, js: js, timeout: config.Timeout, said: listenTo(nc)}
	p.back = adapter.NewReconnect(p.ping)
	return p, nil
}

// OnReconnect implements broker.ReconnectNotifier. It leaves the connection's handlers to the
// application.
func (p *Publisher) OnReconnect(f func()) { p.back.OnReconnect(f) }

// ping asks the server that the connection has.
func (p *Publisher) ping(ctx context.Context) error {
	switch {
	case p.nc.IsClosed():
		return adapter.ErrClosed
	case !p.nc.IsConnected():
		return errDisconnected
	}
	return p.nc.FlushWithContext(ctx)
}

// Publish implements broker.Publisher. It sends the whole batch, then waits for the
// acknowledgements. It returns as soon as the connection breaks.
//
// If nothing listens on a subject, Publish looks up its stream. That needs the permission to
// publish to $JS.API.STREAM.NAMES, or that of its domain. If there is a stream, its leader is being
// elected, and the error is broker.ErrUnavailable, as for a missing answer. If there is none, or
// the lookup is not permitted, the error is broker.ErrNoDestination; so it is for a stream that is
// full and discards new messages. If another subscriber than a stream listens on a subject, there
// is no answer, as from an unavailable server.
//
// The error is broker.ErrRejected for a record that is larger than the server or the stream allows,
// headers included. So it is for a subject that has an empty token, a wildcard, a space or about
// 4,000 bytes, or that the server reserves.
func (p *Publisher) Publish(ctx context.Context, records []broker.Record) []error {
	if len(records) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("no answer within %s", p.timeout))
	defer cancel()
	p.said.look()
	errs := p.send(ctx, records)
	p.explain(ctx, records, errs)
	p.back.Note(errs...)
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("nats: publish to %.200q: %w", records[i].Destination, err)
		}
	}
	return errs
}

// send sends records and waits for what the streams say.
func (p *Publisher) send(ctx context.Context, records []broker.Record) []error {
	b := &batch{errs: make([]error, len(records)), open: make([]bool, len(records))}
	changed := p.nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer p.nc.RemoveStatusListener(changed)
	if !p.nc.IsConnected() {
		return slices.Repeat([]error{p.unavailable(errDisconnected)}, len(records))
	}
	inbox := p.nc.NewInbox()
	answers := make(chan *nats.Msg, len(records)) // one for each, so that none is dropped
	sub, err := p.nc.ChanSubscribe(inbox+".*", answers)
	if err != nil {
		return slices.Repeat([]error{p.unavailable(err)}, len(records))
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only once the connection is closed
	for i, record := range records {
		msg := message(record, inbox+"."+strconv.Itoa(i))
		if b.errs[i] = checkSubject(msg.Subject, msg.Reply); b.errs[i] != nil {
			continue
		}
		err := ctx.Err()
		if err == nil {
			err = p.nc.PublishMsg(msg)
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
				continue // of none here
			}
			b.open[i] = false
			b.left--
			b.errs[i] = p.answer(msg)
		case <-changed:
			b.giveUp(p.unavailable(errDisconnected))
		case <-ctx.Done():
			b.giveUp(p.unavailable(context.Cause(ctx)))
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
func (p *Publisher) sendError(ctx context.Context, record broker.Record, err error) error {
	switch {
	case ctx.Err() != nil:
		return p.unavailable(context.Cause(ctx))
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf(
			"%d bytes and the headers are more than the server's max_payload of %d: %w", len(record.Body), p.nc.MaxPayload(),
			broker.ErrRejected,
		)
	}
	return p.unavailable(err)
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
	codeManyBatches     = 10210 // more atomic ones are open than the server allows, which ends by itself
)

// answer classifies what came back for a record. A duplicate is no error: whether it was sent before cannot be known. Records
// are sent again, without an attempt that was counted, when an answer was lost, when the process died before its commit, and
// when a log forwarder goes on from its checkpoint. It is the same record in any case: the id has its source and destination in it.
func (p *Publisher) answer(msg *nats.Msg) error {
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
		return nats.ErrNoResponders // until it is known why
	}
	var ack struct {
		Stream string              `json:"stream"`
		Error  *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &ack); err != nil || ack.Error == nil && ack.Stream == "" {
		return fmt.Errorf("%.100q is not the answer of a stream", msg.Data)
	}
	if ack.Error == nil {
		return nil
	}
	return fmt.Errorf("%s (%d): %w", ack.Error.Description, ack.Error.ErrorCode, class(ack.Error))
}

// class is what an error of JetStream is to a relay.
func class(err *jetstream.APIError) error {
	full := strings.HasPrefix(err.Description, "maximum ")
	switch code := int(err.ErrorCode); {
	case code == codeMessageTooLarge, code == codeHeadersTooLarge:
		return broker.ErrRejected
	case code == codeStoreFailed && full, code == codeAccountLimits, code == codeMemoryFull, code == codeStorageFull, code == codeSealed:
		return broker.ErrNoDestination
	case code == codeIDInProcess, code == codeManyBatches, err.Code == 503:
		return broker.ErrUnavailable
	}
	return errAttempt
}

// errAttempt is an error of none of the relay's classes.
var errAttempt = errors.New("the stream did not accept the record")

// explain finds out why some of the records have no listener.
func (p *Publisher) explain(ctx context.Context, records []broker.Record, errs []error) {
	known := make(map[string]error)
	for i, err := range errs {
		if err != nats.ErrNoResponders { // as only send says it
			continue
		}
		subject := records[i].Destination
		if known[subject] == nil {
			known[subject] = p.whyNobody(ctx, subject)
		}
		errs[i] = known[subject]
	}
}

// whyNobody asks the servers for the stream that has a subject, if what is sent to it has no
// listener.
func (p *Publisher) whyNobody(ctx context.Context, subject string) error {
	ctx, cancel := context.WithTimeoutCause(
		ctx, p.timeout/2, fmt.Errorf("no stream accepted the record, and the lookup of its stream had no answer within %s", p.timeout/2),
	)
	defer cancel()
	name, err := p.js.StreamNameBySubject(ctx, subject)
	if err == nil {
		return p.unavailable(fmt.Errorf("stream %s does not answer, its leader is being elected: %w", name, nats.ErrNoResponders))
	}
	var api *jetstream.APIError
	switch said := p.nc.LastError(); {
	case errors.As(err, &api) && api.Code == 503: // the servers elect whom to ask
	case ctx.Err() != nil && errors.Is(said, nats.ErrPermissionViolation) && strings.Contains(said.Error(), "STREAM.NAMES"):
		return fmt.Errorf("no stream accepted the record, or its stream is electing a leader: %w: %w", said, broker.ErrNoDestination)
	case errors.As(err, &api),
		errors.Is(err, jetstream.ErrStreamNotFound),
		errors.Is(err, jetstream.ErrInvalidSubject),
		errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("no stream has the subject: %w: %w", err, broker.ErrNoDestination)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return p.unavailable(err)
}

// errDisconnected: the client looks for a server.
var errDisconnected = errors.New("the connection is down")

func (p *Publisher) unavailable(err error) error {
	class := broker.ErrUnavailable
	if !p.nc.IsConnected() {
		class = broker.ErrDisconnected
	}
	return fmt.Errorf("%w: %w", p.said.with(err), class)
}
