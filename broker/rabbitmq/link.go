package rabbitmq

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// heartbeat is how often the client and the broker say that they are still there. Three that are
// missing end a connection.
const heartbeat = 3 * time.Second

// link is a connection to a broker.
type link struct {
	conn    *amqp.Connection
	began   time.Time
	watcher sync.WaitGroup

	mu      sync.Mutex // of what follows
	socket  net.Conn
	reason  string        // why the broker takes nothing, while it does not
	blocked chan struct{} // closed while the broker takes nothing
	free    []*lane       // channels of a publisher that are not in use
	left    []*lane       // those on which records were left, and that are to be closed
}

// dial connects to the first of the URLs that answers before ctx ends; one that does not leaves time
// for the others. Errors name no URL: those have passwords.
func dial(ctx context.Context, urls []string, tlsConfig *tls.Config) (*link, error) {
	var errs []error
	deadline, _ := ctx.Deadline() // all who call this have one
	for i, one := range urls {
		its, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(urls)-i))
		l, err := dialOne(its, one, tlsConfig)
		cancel()
		if err == nil {
			return l, nil
		}
		errs = append(errs, fmt.Errorf("connect to node %d of %d: %w", i+1, len(urls), err))
	}
	return nil, errors.Join(errs...)
}

func dialOne(ctx context.Context, one string, tlsConfig *tls.Config) (*link, error) {
	l := &link{blocked: make(chan struct{})}
	config := amqp.Config{
		Heartbeat:       heartbeat,
		TLSClientConfig: tlsConfig.Clone(),
		Dial: func(network, address string) (net.Conn, error) {
			socket, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			l.mu.Lock()
			l.socket = socket
			l.mu.Unlock()
			// The handshake waits no longer; the client takes the deadline away after it.
			if deadline, ok := ctx.Deadline(); ok {
				err = socket.SetDeadline(deadline)
			}
			return socket, err
		},
	}
	var err error
	stop := context.AfterFunc(ctx, l.cut)
	if l.conn, err = amqp.DialConfig(one, config); err != nil {
		// The client takes whatever ends a handshake for wrong credentials, and leaves the socket open.
		if deadline, ok := ctx.Deadline(); !stop() || ok && !time.Now().Before(deadline) {
			err = fmt.Errorf("the node has not answered: %w", cmp.Or(context.Cause(ctx), context.DeadlineExceeded))
		}
		l.cut()
		return nil, err
	}
	if !stop() {
		l.close()
		return nil, context.Cause(ctx)
	}
	l.began = time.Now()
	blocked := l.conn.NotifyBlocked(make(chan amqp.Blocking, 1)) // one, so that the reader seldom waits
	l.watcher.Go(func() {
		for b := range blocked { // until the connection ends
			l.setBlocked(b)
		}
	})
	return l, nil
}

// setBlocked notes whether the broker takes something, as it says whenever that changes.
func (l *link) setBlocked(b amqp.Blocking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.reason != ""
	switch {
	case b.Active && !was:
		l.reason = "the broker blocks publishers: " + b.Reason
		close(l.blocked)
	case !b.Active && was:
		l.reason, l.blocked = "", make(chan struct{})
	}
}

// block returns a channel that is closed while the broker takes nothing, and why that is so, if it is.
func (l *link) block() (blocked <-chan struct{}, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blocked, l.reason
}

// giveBack lets others have a channel, if it is still good.
func (l *link) giveBack(one *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case one.channel.IsClosed():
	case one.left:
		l.left = append(l.left, one)
	default:
		l.free = append(l.free, one)
	}
}

// reuse returns a channel that was given back, if there is one.
func (l *link) reuse() *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.free) > 0 {
		last := l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
		if !last.channel.IsClosed() {
			return last
		}
	}
	return nil
}

// closeLeft closes the channels on which records were left. It is for a broker that takes something again: while
// it blocks publishers it does not listen to them.
func (l *link) closeLeft() {
	l.mu.Lock()
	left := l.left
	l.left = nil
	l.mu.Unlock()
	for _, one := range left {
		_ = one.channel.Close() // or else it ends with the connection
	}
}

// cut closes the connection's socket: whatever waits for the broker fails.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.socket != nil {
		_ = l.socket.Close() // it may be closed already
	}
}

// close says goodbye, for which the broker has a second.
func (l *link) close() {
	late := time.AfterFunc(time.Second, l.cut)
	_ = l.conn.Close() // it may be closed already
	late.Stop()
	l.cut()
	l.watcher.Wait()
}

// errUnreadable: a URL is none.
var errUnreadable = errors.New("the URL cannot be parsed: in a password, all but letters, digits and -_.~ must be percent-encoded")

// checkURLs says which URLs cannot be read, without their passwords.
func checkURLs(field string, urls []string) error {
	if len(urls) == 0 {
		return fmt.Errorf("rabbitmq: %s is required", field)
	}
	var errs []error
	for i, one := range urls {
		if _, err := amqp.ParseURI(one); err != nil {
			var parse *url.Error
			if errors.As(err, &parse) { // which has the URL in it, and its reason what it took for a port: maybe the password
				err = errUnreadable
			}
			errs = append(errs, fmt.Errorf("rabbitmq: %s[%d] is not an AMQP URL: %w", field, i, err))
		}
	}
	return errors.Join(errs...)
}
