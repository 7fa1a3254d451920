package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
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

// Proxy stands between clients and a server, understands as much of its protocol as
// it takes to see statements, and does harm on demand. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	network  string
	address  string
	wire     wire
	decide   atomic.Pointer[func(sql string) Fault]
	delay    atomic.Int64 // of everything on its way to the server
	stalled  atomic.Bool  // nothing passes, and nobody is told
	prepared testdb.Prepared
	accepted atomic.Int64
	wg       sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// NewProxyTo listens on a local port and forwards to the server of a data source
// name. It returns the name of the way through it, too.
func NewProxyTo(dsn string) (p *Proxy, through string, err error) {
	source := Source(dsn)
	network, address, err := source.server()
	if err != nil {
		return nil, "", fmt.Errorf("chaos: proxy: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("chaos: proxy: %w", err)
	}
	p = &Proxy{listener: listener, network: network, address: address, wire: wireOf(source), conns: make(map[net.Conn]struct{})}
	p.Decide(func(string) Fault { return Forward })
	p.wg.Go(p.accept)
	way, err := source.Rerouted(p.Port())
	if err != nil {
		p.Close()
	}
	return p, string(way), err
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
	if err := s.proxy.wire.startup(s.client, s.server); err != nil {
		return
	}
	client, wire := bufio.NewReaderSize(s.client, 64<<10), s.proxy.wire
	for {
		together := client.Buffered() > 0 // with the message before, so it has been delayed
		header := make([]byte, wire.header)
		if _, err := io.ReadFull(client, header); err != nil {
			return
		}
		body := make([]byte, wire.length(header))
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

func (s *session) forward(header, body []byte) error {
	s.pass()
	fault := Forward
	if sql, ok := s.proxy.wire.statement(header, body); ok {
		fault = (*s.proxy.decide.Load())(s.proxy.prepared.Text(sql))
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
