package nats

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// AppenderConfig configures an [Appender].
type AppenderConfig struct {
	// Stream is the name of the stream. It must have AllowAtomicPublish and the retention policy
	// "limits". Its subjects must cover Prefix and everything below it. Required.
	Stream string
	// Domain is the JetStream domain of the stream, if the connection's server belongs to another
	// one, such as a leaf node. Defaults to the server's own.
	Domain string
	// Prefix begins the subjects. The shard's number follows it, then the record's Destination or,
	// if that is empty, its type. Only one log forwarder may publish below it. Required.
	Prefix string
	// Timeout limits the wait for the stream. Defaults to 5 s.
	Timeout time.Duration
}

// Appender writes the shards of a relay.NewLogForwarder into a stream. Each batch is atomic, and
// the stream rejects it unless the shard's last message is the one that the relay expects. So the
// stream has each event once, in order, without a duplicate window. It needs NATS 2.12 or newer. An
// Appender is also a [Publisher], and is safe for concurrent use.
type Appender struct {
	*Publisher
	config AppenderConfig
}

// NewAppender makes an Appender. It does not close the connection. It returns an error if the
// connection lacks the settings of [Options], or its server is too old. It does not check the
// stream: a relay.Runner does that at its start.
func NewAppender(nc *nats.Conn, config AppenderConfig) (*Appender, error) {
	publisher, err := NewPublisher(nc, PublisherConfig{Domain: config.Domain, Timeout: config.Timeout})
	errs := []error{err}
	if config.Stream == "" {
		errs = append(errs, errors.New("nats: AppenderConfig.Stream is required"))
	}
	if config.Prefix == "" || token(config.Prefix) != config.Prefix {
		errs = append(
			errs,
			fmt.Errorf("nats: AppenderConfig.Prefix %q: letters, digits, \"-\", \"_\" and single dots inside are allowed", config.Prefix),
		)
	}
	if nc != nil && nc.IsConnected() {
		errs = append(errs, atomicSince(nc.ConnectedServerVersion()))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Appender{Publisher: publisher, config: config}, nil
}

// atomicSince reports a server that has no atomic batches.
func atomicSince(version string) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil || major > 2 || major == 2 && minor >= 12 {
		return nil // what is no number is a custom build: the stream will show it
	}
	return fmt.Errorf("nats: server %s has no atomic batches, 2.12 or newer is needed", version)
}

// filter is what all messages of a shard match, and no others.
func (a *Appender) filter(shard int) string {
	return a.config.Prefix + "." + strconv.Itoa(shard) + ".>"
}

// Last implements broker.Appender. The revision of a message is its sequence in the stream. It is an
// error if the stream does not allow atomic batches, or if a relay did not write the shard's last
// message.
func (a *Appender) Last(ctx context.Context, shard int) (id string, position int64, revision uint64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, fmt.Errorf("no answer within %s", a.timeout))
	defer cancel()
	defer func() { a.back.Note(err) }()
	a.said.look()
	stream, err := a.js.Stream(ctx, a.config.Stream)
	if err != nil {
		return "", 0, 0, a.lookError("look up the stream", err)
	}
	if config := stream.CachedInfo().Config; !config.AllowAtomicPublish {
		return "", 0, 0, fmt.Errorf(
			"nats: stream %s does not allow atomic batches: set AllowAtomicPublish (allow_atomic), which needs NATS 2.12 or newer "+
				"(this server: %s)",
			a.config.Stream, a.nc.ConnectedServerVersion(),
		)
	} else if config.NoAck || !covers(config.Subjects, a.config.Prefix) {
		return "", 0, 0, fmt.Errorf("nats: stream %s: subjects %q must include %s.>, and no_ack "+
			"must be off", a.config.Stream, config.Subjects, a.config.Prefix)
	} else if config.Retention != jetstream.LimitsPolicy {
		// The last record would be older than those that were taken: they would leave once more.
		return "", 0, 0, fmt.Errorf("nats: stream %s: retention %s: limits is needed, or the last records could be removed before "+
			"others", a.config.Stream, config.Retention)
	}
	msg, err := stream.GetLastMsgForSubject(ctx, a.filter(shard))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		info, err := stream.Info(ctx)
		if err != nil {
			return "", 0, 0, a.lookError("read the state of stream", err)
		}
		return "", 0, max(info.State.FirstSeq, 1) - 1, nil
	}
	if err != nil {
		return "", 0, 0, a.lookError("read the last message of stream", err)
	}
	last := record(&nats.Msg{Subject: msg.Subject, Header: msg.Header, Data: msg.Data})
	if position, err = positionOf(last); err != nil {
		return "", 0, 0, fmt.Errorf(
			"nats: message %d of stream %s, on %s, is not a relay's record: only relays may publish to this stream", msg.Sequence,
			a.config.Stream, msg.Subject,
		)
	}
	return last.ID, position, msg.Sequence, nil
}

// positionOf reads the position of a record in binary or structured mode.
func positionOf(r broker.Record) (int64, error) {
	event := struct{ Sequence string }{r.Attributes["sequence"]}
	if event.Sequence == "" {
		if err := json.Unmarshal(r.Body, &event); err != nil {
			return 0, err
		}
	}
	return strconv.ParseInt(event.Sequence, 10, 64)
}

// covers reports whether one of a stream's subjects is that of all below a prefix.
func covers(subjects []string, prefix string) bool {
	for _, subject := range subjects {
		head, all := strings.CutSuffix(subject, ">")
		if all && strings.HasPrefix(prefix+".", head) {
			return true
		}
	}
	return false
}

func (a *Appender) lookError(operation string, err error) error {
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("nats: %s %s: %w: %w", operation, a.config.Stream, err, broker.ErrNoDestination)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("nats: %s %s: %w", operation, a.config.Stream, err)
	}
	return fmt.Errorf("nats: %s %s: %w", operation, a.config.Stream, a.unavailable(err))
}

// Headers of atomic batches.
const (
	batchIDHeader     = "Nats-Batch-Id"
	batchNumberHeader = "Nats-Batch-Sequence"
	batchCommitHeader = "Nats-Batch-Commit"
	expectedHeader    = "Nats-Expected-Last-Subject-Sequence"
	expectedOfHeader  = "Nats-Expected-Last-Subject-Sequence-Subject"
	expectedIn        = "Nats-Expected-Stream"
)

const codeWrongLast = 10071

// Append implements broker.Appender. It returns nil once the server has acknowledged the whole
// batch.
func (a *Appender) Append(ctx context.Context, shard int, after uint64, records []broker.Record) (revision uint64, err error) {
	if len(records) == 0 {
		return after, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, fmt.Errorf("no answer within %s", a.timeout))
	defer cancel()
	a.said.look()
	if revision, err = a.append(ctx, shard, after, records); err != nil {
		a.back.Note(err)
		return 0, fmt.Errorf("nats: append to shard %d of stream %s: %w", shard, a.config.Stream, err)
	}
	return revision, nil
}

func (a *Appender) append(ctx context.Context, shard int, after uint64, records []broker.Record) (revision uint64, err error) {
	if !a.nc.IsConnected() {
		return 0, a.unavailable(errDisconnected)
	}
	id, msgs := rand.Text(), make([]*nats.Msg, len(records))
	for i, r := range records {
		msgs[i] = a.batchMessage(shard, r, id, i)
		if err := checkSubject(msgs[i].Subject, ""); err != nil {
			return 0, err
		}
	}
	last := len(msgs) - 1
	msgs[0].Header.Set(expectedHeader, strconv.FormatUint(after, 10))
	msgs[0].Header.Set(expectedOfHeader, a.filter(shard))
	msgs[0].Header.Set(expectedIn, a.config.Stream)
	msgs[last].Header.Set(batchCommitHeader, "1")
	for i, msg := range msgs[:last] {
		if err := a.nc.PublishMsg(msg); err != nil { // the batch is given up by the server: it has no end
			return 0, a.sendError(ctx, records[i], err)
		}
	}
	answer, err := a.nc.RequestMsgWithContext(ctx, msgs[last])
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return 0, a.whyNobody(ctx, msgs[last].Subject)
	case err != nil:
		return 0, a.sendError(ctx, records[last], err)
	}
	return a.committed(answer, len(records))
}

// batchMessage is a record as a message of a batch. JetStream's own dedupe is not for batches: the id
// travels beside it.
func (a *Appender) batchMessage(shard int, r broker.Record, id string, i int) *nats.Msg {
	msg := message(r, "")
	name := r.Destination
	if name == "" {
		name = r.Attributes["type"]
	}
	msg.Subject = a.config.Prefix + "." + strconv.Itoa(shard) + "." + token(name)
	msg.Header.Del(idHeader)
	if r.ID != "" {
		msg.Header[encodedIDHeader] = []string{encode(r.ID)}
	}
	msg.Header[batchIDHeader], msg.Header[batchNumberHeader] = []string{id}, []string{strconv.Itoa(i + 1)}
	return msg
}

// committed reads the answer to the end of a batch.
func (a *Appender) committed(msg *nats.Msg, n int) (revision uint64, err error) {
	var ack struct {
		Stream   string              `json:"stream"`
		Sequence uint64              `json:"seq"`
		Batch    string              `json:"batch"`
		Count    int                 `json:"count"`
		Error    *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &ack); err != nil {
		return 0, fmt.Errorf("%.100q is not the answer of a stream", msg.Data)
	}
	switch {
	case ack.Error != nil && ack.Error.ErrorCode == codeWrongLast:
		return 0, fmt.Errorf("%s: %w", ack.Error.Description, broker.ErrSequenceConflict)
	case ack.Error != nil:
		return 0, fmt.Errorf("%s (%d): %w", ack.Error.Description, ack.Error.ErrorCode, class(ack.Error))
	case ack.Sequence == 0 || ack.Batch == "" || ack.Count != n:
		return 0, fmt.Errorf("the server did not accept the batch of %d records: %.100q: is it 2.12 or newer?", n, msg.Data)
	}
	return ack.Sequence, nil
}

// token makes what may be part of a subject, without wildcards and empty tokens.
func token(name string) string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '.' })
	for i, part := range parts {
		parts[i] = strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
				return r
			}
			return '_'
		}, part)
	}
	if len(parts) == 0 {
		return "_"
	}
	return strings.Join(parts, ".")
}
