package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/broker/internal/adapter"
)

// pull asks the server for messages. What comes late, of a request that was given up, is in the next
// batch: nothing that the server has delivered is left lying.
type pull struct {
	nc      *nats.Conn
	sub     *nats.Subscription
	msgs    chan *nats.Msg
	changed chan nats.Status
	subject string // of requests
	request []byte
	inbox   string
	batch   int
	number  int // of the request
	began   time.Time
	said    *complaints
	away    *adapter.Outage
}

// errLookAgain: no server answers for the consumer.
var errLookAgain = errors.New("no server answers for the consumer")

func (s *Subscriber) newPull() (*pull, error) {
	inbox := s.nc.NewInbox()
	p := &pull{
		nc: s.nc,
		// Two requests' messages, and what is said about them: a full channel drops.
		msgs:    make(chan *nats.Msg, 2*s.config.Batch+64),
		subject: apiPrefix(s.config.Domain) + "CONSUMER.MSG.NEXT." + s.config.Stream + "." + s.config.Consumer,
		request: fmt.Appendf(nil, `{"batch":%d,"expires":%d,"idle_heartbeat":%d,"no_wait":true}`, s.config.Batch, requestExpires, heartbeat),
		inbox:   inbox,
		batch:   s.config.Batch,
		said:    s.said,
		away:    &s.away,
	}
	var err error
	if p.sub, err = s.nc.ChanSubscribe(inbox+".*", p.msgs); err != nil {
		return nil, err
	}
	p.changed = s.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	return p, nil
}

func (p *pull) close() {
	p.nc.RemoveStatusListener(p.changed)
	_ = p.sub.Unsubscribe() // fails only once the connection is closed
}

// next asks for a batch and returns what comes: as soon as there is something, all that there is, as
// far as it fits. It returns nothing if ctx ends, or if the server has to be asked again.
func (p *pull) next(ctx context.Context) (got []*nats.Msg, err error) {
	p.number++
	reply := p.inbox + "." + strconv.Itoa(p.number)
	p.began = time.Now()
	p.said.look()
	if err := p.nc.PublishRequest(p.subject, reply, p.request); errors.Is(err, nats.ErrConnectionClosed) {
		return nil, err
	} // any other: there is no answer, and it is asked again
	silence := time.NewTimer(2 * heartbeat)
	defer silence.Stop()
	for len(got) < p.batch {
		select {
		case msg := <-p.msgs:
			silence.Reset(2 * heartbeat)
			if isMessage(msg) {
				if got = append(got, msg); len(got) == 1 {
					p.away.Note(nil)
				}
				continue
			}
			if msg.Subject != reply {
				continue // about an earlier request
			}
			if over, err := p.verdict(ctx, msg, len(got)); over || err != nil {
				return got, ignoreIf(len(got) > 0, err)
			}
		case status := <-p.changed:
			if status == nats.CLOSED {
				return got, ignoreIf(len(got) > 0, nats.ErrConnectionClosed)
			}
			return got, nil // the server may not know of the request
		case <-silence.C:
			p.away.Note(p.whySilent())
			return got, nil
		case <-ctx.Done():
			p.giveBack(got)
			return nil, nil
		}
	}
	return got, nil
}

// whySilent is why nothing was heard of the server.
func (p *pull) whySilent() error {
	err := errDisconnected
	if p.nc.IsConnected() {
		err = fmt.Errorf("no message or heartbeat from the server for %s", 2*heartbeat)
	}
	return p.said.with(err)
}

// ignoreIf: an error that will be met again waits until what has come is done.
func ignoreIf(yes bool, err error) error {
	if yes {
		return nil
	}
	return err
}

// isMessage reports whether msg is one of the stream, and not what the server says of a request.
func isMessage(msg *nats.Msg) bool { return strings.HasPrefix(msg.Reply, "$JS.ACK.") }

// verdict reads what the server says of the request: whether it is over, or cannot be answered.
func (p *pull) verdict(ctx context.Context, msg *nats.Msg, got int) (over bool, err error) {
	status, said := msg.Header.Get("Status"), msg.Header.Get("Description")
	switch {
	case status == "503", status == "409" && strings.Contains(strings.ToLower(said), "delete"):
		return true, errLookAgain
	}
	p.away.Note(nil)
	switch {
	case status == "100": // a heartbeat
		return false, nil
	case got == 0 && time.Since(p.began) < adapter.FirstPause:
		// Over at once and empty: another subscriber waits for the same messages, for instance.
		adapter.Pause(ctx, adapter.FirstPause/2)
	}
	return true, nil
}

// giveBack gives back what came when ctx ended, and what is there but was not read.
func (p *pull) giveBack(got []*nats.Msg) {
	for {
		select {
		case msg := <-p.msgs:
			if isMessage(msg) {
				got = append(got, msg)
			}
			continue
		default:
		}
		break
	}
	for _, msg := range got {
		_ = p.nc.Publish(msg.Reply, []byte("-NAK"))
	}
}
