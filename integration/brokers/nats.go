//go:build unix

package brokers

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATS are NATS servers with JetStream: one, or a cluster.
type NATS struct {
	Nodes []*Process
	links *links // between the servers; nil if they are not to be cut
}

// StartNATS starts n servers. Those of a cluster are ready when they have a leader.
func StartNATS(t testing.TB, n int) *NATS {
	t.Helper()
	return startNATS(t, n, false)
}

// StartLinkedNATS starts a cluster of which servers can be cut off: see [NATS.Part].
func StartLinkedNATS(t testing.TB, n int) *NATS {
	t.Helper()
	return startNATS(t, n, true)
}

func startNATS(t testing.TB, n int, linked bool) *NATS {
	t.Helper()
	servers, err := newNATS(t.TempDir(), n)
	if err != nil {
		t.Fatal(err)
	}
	if linked {
		servers.link(t)
	}
	t.Cleanup(func() { _ = servers.Kill() })
	if err := servers.Start(); err != nil {
		t.Fatal(err)
	}
	return servers
}

// StartLeafNATS starts a server of the domain "hub", and a leaf node of it with a domain of its own, "leaf".
func StartLeafNATS(t testing.TB) (hub, leaf *NATS) {
	t.Helper()
	ports, err := freePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	start := func(s settings, port int) *NATS {
		s.Kind, s.Name, s.Dir, s.Ports = "nats", s.Domain, t.TempDir(), []int{port}
		return &NATS{Nodes: []*Process{newProcess(t, s)}}
	}
	hub = start(settings{Domain: "hub", Leaves: ports[2]}, ports[0])
	return hub, start(settings{Domain: "leaf", Hub: ports[2]}, ports[1])
}

// LaunchNATS is StartNATS for a program that is no test. What the servers keep is below the
// directory; Kill ends them.
func LaunchNATS(dir string, n int) (*NATS, error) {
	servers, err := newNATS(dir, n)
	if err != nil {
		return nil, err
	}
	if err := servers.Start(); err != nil {
		return nil, errors.Join(err, servers.Kill())
	}
	return servers, nil
}

// link has the servers of a cluster reach each other through links that can be cut.
func (s *NATS) link(t testing.TB) {
	s.links = newLinks(t, s.Nodes[0].settings.Routes)
	for i, node := range s.Nodes {
		node.settings.Routes, node.settings.Hidden = s.links.from(i), true
	}
}

// newNATS makes n servers that do not run.
func newNATS(dir string, n int) (*NATS, error) {
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	servers := &NATS{}
	for i := range n {
		name := "n" + strconv.Itoa(i)
		s := settings{Kind: "nats", Name: name, Dir: filepath.Join(dir, name), Ports: ports[i : i+1]}
		if n > 1 {
			s.Port, s.Routes = ports[n+i], ports[n:]
		}
		servers.Nodes = append(servers.Nodes, &Process{settings: s})
	}
	return servers, nil
}

// URL names all servers, for nats.Connect.
func (s *NATS) URL() string {
	var urls []string
	for _, node := range s.Nodes {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", node.settings.Ports[0]))
	}
	return strings.Join(urls, ",")
}

// Node returns the server of a name, as a stream tells that of its leader.
func (s *NATS) Node(name string) (*Process, error) {
	for _, node := range s.Nodes {
		if node.settings.Name == name {
			return node, nil
		}
	}
	return nil, fmt.Errorf("there is no server %q", name)
}

// Part has nothing pass between a server and the others, whose connections stay, until Join. Those of
// clients are not concerned.
func (s *NATS) Part(p *Process) { s.links.cut(slices.Index(s.Nodes, p), true) }

// CutNode closes the connections of a server's clients, which go to others first.
func (s *NATS) CutNode(p *Process) error { return p.ask("cut") }

// Join ends what Part began.
func (s *NATS) Join(p *Process) { s.links.cut(slices.Index(s.Nodes, p), false) }

// Start starts the servers that do not run, and lets paused ones go on.
func (s *NATS) Start() error { return each(s.Nodes, (*Process).Start) }

// Kill ends all servers at once.
func (s *NATS) Kill() error { return each(s.Nodes, (*Process).Kill) }

// Pause stops all servers until Start.
func (s *NATS) Pause() error { return each(s.Nodes, (*Process).Pause) }

// Cut closes the connections of all clients.
func (s *NATS) Cut() error {
	return each(s.Nodes, func(p *Process) error { return p.ask("cut") })
}

// serveNATS is what the process of a server does.
func serveNATS(s settings) error {
	options := &server.Options{
		Host: "127.0.0.1", Port: s.Ports[0], ServerName: s.Name,
		JetStream: true, StoreDir: s.Dir, JetStreamMaxStore: 4 << 30, JetStreamMaxMemory: 64 << 20,
		NoLog: true, NoSigs: true,
	}
	if s.Port != 0 {
		options.Cluster = server.ClusterOpts{Name: "asyncmonolith", Host: "127.0.0.1", Port: s.Port}
		for _, port := range s.Routes {
			options.Routes = append(options.Routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
		}
		if s.Hidden {
			options.Cluster.Advertise = "127.0.0.1:1" // nobody finds it but by its links
		}
	}
	if options.JetStreamDomain = s.Domain; s.Leaves != 0 {
		options.LeafNode = server.LeafNodeOpts{Host: "127.0.0.1", Port: s.Leaves}
	}
	if s.Hub != 0 {
		hub := &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", s.Hub)}
		options.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{hub}}}
	}
	srv, err := server.NewServer(options)
	if err != nil {
		return err
	}
	srv.Start()
	defer srv.Shutdown()
	deadline := time.Now().Add(50 * time.Second)
	for !srv.ReadyForConnections(time.Second) || s.Port != 0 && !srv.JetStreamIsCurrent() || s.Hub != 0 && srv.NumLeafNodes() == 0 {
		if time.Now().After(deadline) {
			return fmt.Errorf("NATS server %s is not ready", s.Name)
		}
		<-time.After(20 * time.Millisecond)
	}
	return serve(map[string]func(){"cut": func() { cutClients(srv) }})
}

func cutClients(srv *server.Server) {
	connections, err := srv.Connz(&server.ConnzOptions{Limit: 1 << 16})
	if err != nil {
		return
	}
	for _, c := range connections.Conns {
		_ = srv.DisconnectClientByID(c.Cid) // fails if it has gone by itself
	}
}
