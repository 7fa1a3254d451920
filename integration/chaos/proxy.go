package chaos

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Fault is what a [Proxy] does to a statement or a connection.
type Fault int

// The faults.
const (
	Forward   Fault = iota
	DropQuery       // cut the connection before the statement reaches the server
	DropReply       // let the server carry it out, then cut the connection before its answer
	Vanish          // pass nothing on any more and cut nothing: the server is left with a silent client
)

// Proxy stands between clients and a PostgreSQL server, understands as much of
// the protocol as it takes to see statements, and does harm on demand. It is safe
// for concurrent use.
type Proxy struct {
	listener net.Listener
	network  string
	address  string
	decide   atomic.Pointer[func(sql string) Fault]
	delay    atomic.Int64 // of everything on its way to the server
	stalled  atomic.Bool  // nothing passes, and nobody is told
	accepted atomic.Int64
	wg       sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// NewProxy listens on a local port and forwards to the server at the address, a
// Unix socket or a TCP address.
func NewProxy(network, address string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("chaos: proxy: %w", err)
	}
	p := &Proxy{listener: listener, network: network, address: address, conns: make(map[net.Conn]struct{})}
	p.Decide(func(string) Fault { return Forward })
	p.wg.Go(p.accept)
	return p, nil
}

// NewProxyTo is [NewProxy] to the server of a data source name, with the name of
// the way through it.
func NewProxyTo(dsn string) (p *Proxy, through string, err error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, "", fmt.Errorf("chaos: proxy: %w", err)
	}
	network, address := "tcp", fmt.Sprintf("%s:%d", config.Host, config.Port)
	if strings.HasPrefix(config.Host, "/") {
		network, address = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", config.Host, config.Port)
	}
	if p, err = NewProxy(network, address); err != nil {
		return nil, "", err
	}
	if through, err = Rerouted(dsn, p.Port()); err != nil {
		p.Close()
	}
	return p, through, err
}

// Rerouted is the data source name of the same database by way of a local port.
func Rerouted(dsn string, port int) (string, error) {
	through, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("chaos: data source name: %w", err)
	}
	query := through.Query()
	query.Set("host", "127.0.0.1")
	query.Set("port", strconv.Itoa(port))
	query.Set("connect_timeout", "5")
	through.Host, through.RawQuery = "", query.Encode()
	return through.String(), nil
}

// Port is the TCP port the proxy listens on, at 127.0.0.1.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Decide sets what becomes of each statement from now on.
func (p *Proxy) Decide(decide func(sql string) Fault) { p.decide.Store(&decide) }

// Accepted is how many connections there have been.
func (p *Proxy) Accepted() int64 { return p.accepted.Load() }

// Delay holds everything on its way to the server for d, so that every round trip
// takes that much longer.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Stall makes a black hole of the proxy, or ends it: connections stay open and
// nothing passes either way.
func (p *Proxy) Stall(on bool) { p.stalled.Store(on) }

// Reset cuts every connection, and returns how many clients it hit.
func (p *Proxy) Reset() (cut int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset rather than an orderly end
		}
		if p.listener.Addr().String() == conn.LocalAddr().String() {
			cut++
		}
		_ = conn.Close()
	}
	return cut
}

// Close ends the proxy and everything it started.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Stall(false)
	_ = p.listener.Close()
	p.Reset()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) untilClosed() {
	for open := true; open; {
		<-time.After(20 * time.Millisecond)
		p.mu.Lock()
		open = !p.closed
		p.mu.Unlock()
	}
}

// hold keeps a connection until it is let go; false means that the proxy closes.
func (p *Proxy) hold(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.conns[conn] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) letGo(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	_ = conn.Close()
}

func (p *Proxy) serve(client net.Conn) {
	defer p.letGo(client)
	if !p.hold(client) {
		return
	}
	server, err := net.DialTimeout(p.network, p.address, 5*time.Second)
	if err != nil {
		return
	}
	defer p.letGo(server)
	if !p.hold(server) {
		return
	}
	s := &session{proxy: p, client: client, server: server}
	var answers sync.WaitGroup
	answers.Go(s.answer)
	s.ask()
	_ = client.Close()
	_ = server.Close()
	answers.Wait()
}

// session is one client's connection and the one to the server that belongs to it.
type session struct {
	proxy          *Proxy
	client, server net.Conn
	mute           atomic.Bool // the answer that comes next is lost
}

// errCut ends a session that a fault has cut.
var errCut = errors.New("chaos: connection cut")

// ask forwards what the client sends, message by message.
func (s *session) ask() {
	if err := s.startup(); err != nil {
		return
	}
	client := bufio.NewReaderSize(s.client, 64<<10)
	for {
		together := client.Buffered() > 0 // with the message before, so it has been delayed
		header := make([]byte, 5)
		if _, err := io.ReadFull(client, header); err != nil {
			return
		}
		body := make([]byte, int(binary.BigEndian.Uint32(header[1:]))-4)
		if _, err := io.ReadFull(client, body); err != nil {
			return
		}
		if d := time.Duration(s.proxy.delay.Load()); d > 0 && !together {
			<-time.After(d)
		}
		if err := s.forward(header, body); err != nil {
			return
		}
	}
}

// startup forwards the first message, which has no type, and whatever precedes it.
func (s *session) startup() error {
	for {
		header := make([]byte, 8)
		if _, err := io.ReadFull(s.client, header); err != nil {
			return err
		}
		body := make([]byte, int(binary.BigEndian.Uint32(header))-8)
		if _, err := io.ReadFull(s.client, body); err != nil {
			return err
		}
		if _, err := s.server.Write(append(header, body...)); err != nil {
			return err
		}
		if len(body) > 0 { // else a request for encryption, which the server answers first
			return nil
		}
	}
}

func (s *session) forward(header, body []byte) error {
	s.pass()
	fault := Forward
	if sql, ok := statement(header[0], body); ok {
		fault = (*s.proxy.decide.Load())(sql)
	}
	switch fault {
	case DropQuery:
		return errCut
	case DropReply:
		s.mute.Store(true)
	case Vanish:
		s.mute.Store(true)
		s.proxy.untilClosed()
		return errCut
	}
	_, err := s.server.Write(append(header, body...))
	return err
}

// statement returns the text of a message that carries one: Query and Parse.
func statement(kind byte, body []byte) (string, bool) {
	switch kind {
	case 'Q':
		return strings.TrimRight(string(body), "\x00"), true
	case 'P':
		if _, rest, ok := strings.Cut(string(body), "\x00"); ok {
			sql, _, _ := strings.Cut(rest, "\x00")
			return sql, true
		}
	}
	return "", false
}

// answer passes on what the server says, until an answer is to be lost: then the
// client finds its connection cut. The server is done with the statement by then,
// since it flushes short answers only at their end.
func (s *session) answer() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := s.server.Read(buffer)
		if err != nil || s.mute.Load() {
			_ = s.client.Close()
			return
		}
		s.pass()
		if _, err := s.client.Write(buffer[:n]); err != nil {
			_ = s.server.Close()
			return
		}
	}
}

// pass waits as long as the proxy stalls.
func (s *session) pass() {
	for s.proxy.stalled.Load() {
		<-time.After(20 * time.Millisecond)
	}
}
