//go:build unix

package brokers

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// links are the ways from each server of a cluster to each other one. They can be stopped: then
// connections stay, and nothing passes.
type links struct {
	all map[[2]int]*link // from, to
}

// link forwards connections to a port.
type link struct {
	listener net.Listener
	port     int
	wg       sync.WaitGroup

	mu     sync.Mutex
	open   chan struct{} // closed while the link passes something on
	closed bool
	conns  map[net.Conn]struct{}
}

// newLinks links servers that listen on these ports for each other.
func newLinks(t testing.TB, ports []int) *links {
	t.Helper()
	ls := &links{all: make(map[[2]int]*link)}
	t.Cleanup(ls.close)
	for from := range ports {
		for to, port := range ports {
			if from == to {
				continue
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l := &link{listener: listener, port: port, open: make(chan struct{}), conns: make(map[net.Conn]struct{})}
			close(l.open)
			ls.all[[2]int{from, to}] = l
			l.wg.Go(l.accept)
		}
	}
	return ls
}

// from are the ports behind which a server finds the others.
func (ls *links) from(server int) (ports []int) {
	for pair, l := range ls.all {
		if pair[0] == server {
			ports = append(ports, l.listener.Addr().(*net.TCPAddr).Port)
		}
	}
	return ports
}

// cut has nothing pass from and to a server, or everything again.
func (ls *links) cut(server int, cut bool) {
	for pair, l := range ls.all {
		if pair[0] == server || pair[1] == server {
			l.cut(cut)
		}
	}
}

func (ls *links) close() {
	for _, l := range ls.all {
		l.close()
	}
}

func (l *link) cut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
		if cut {
			l.open = make(chan struct{})
		}
	default:
		if !cut {
			close(l.open)
		}
	}
}

func (l *link) close() {
	_ = l.listener.Close()
	l.cut(false)
	l.mu.Lock()
	l.closed = true
	for conn := range l.conns {
		_ = conn.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// accept forwards connections until the link is closed.
func (l *link) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.forward(conn) })
	}
}

func (l *link) forward(conn net.Conn) {
	defer conn.Close()
	l.wait()
	server, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(l.port), 5*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	if !l.keep(conn, server) {
		return
	}
	defer l.forget(conn, server)
	var back sync.WaitGroup
	back.Go(func() { l.pass(conn, server) })
	l.pass(server, conn)
	back.Wait()
}

// pass copies until either side ends, and ends both then.
func (l *link) pass(to, from net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		l.wait()
		if n > 0 && err == nil {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}

// wait waits until something passes.
func (l *link) wait() {
	l.mu.Lock()
	open := l.open
	l.mu.Unlock()
	<-open
}

// keep notes connections, for close to end them, unless that has happened.
func (l *link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		l.conns[conn] = struct{}{}
	}
	return !l.closed
}

func (l *link) forget(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		delete(l.conns, conn)
	}
}
