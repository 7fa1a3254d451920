package sdkevents_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// fakeNATS is as much of a NATS server as an adapter needs that publishes to a stream, and receives
// from its consumer. A real one would be compiled with each fuzz target, which takes minutes.
type fakeNATS struct {
	running sync.WaitGroup

	mu     sync.Mutex // of what follows
	out    net.Conn
	sids   map[string]string // of subscriptions, by subject, or its beginning before a wildcard
	pull   string            // where the consumer's messages are asked for
	behind []wireMessage     // of the stream, which nobody has asked for
}

type wireMessage struct {
	subject      string
	header, body []byte
}

const (
	fakeStream   = "S"
	fakeConsumer = "all"
	fakeSubject  = "event"
)

// InProcessConn implements nats.InProcessConnProvider, for one connection.
func (f *fakeNATS) InProcessConn() (net.Conn, error) {
	client, server := net.Pipe()
	f.out, f.sids = server, make(map[string]string)
	f.running.Go(func() { f.serve(server) })
	return client, nil
}

func (f *fakeNATS) serve(conn net.Conn) {
	defer conn.Close()
	f.write([]byte(`INFO {"server_id":"F","version":"2.15.2","headers":true,"jetstream":true,"max_payload":1048576,"proto":1}` + "\r\n"))
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		fields := strings.Fields(line)
		switch fields[0] {
		case "PING":
			f.write([]byte("PONG\r\n"))
		case "SUB":
			f.mu.Lock()
			f.sids[strings.TrimSuffix(fields[1], "*")] = fields[len(fields)-1]
			f.mu.Unlock()
		case "PUB", "HPUB":
			sizes := 1
			if fields[0] == "HPUB" {
				sizes = 2
			}
			total, err := strconv.Atoi(fields[len(fields)-1])
			if err != nil {
				return
			}
			data := make([]byte, total+2)
			if _, err := io.ReadFull(in, data); err != nil {
				return
			}
			m := wireMessage{subject: fields[1], body: data[:total]}
			if sizes == 2 {
				n, err := strconv.Atoi(fields[len(fields)-2])
				if err != nil {
					return
				}
				m.header, m.body = data[:n], data[n:total]
			}
			reply := ""
			if len(fields) == 3+sizes {
				reply = fields[2]
			}
			f.published(m, reply)
		}
	}
}

// published does what the stream does, and its interface.
func (f *fakeNATS) published(m wireMessage, reply string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch m.subject {
	case "$JS.API.CONSUMER.INFO." + fakeStream + "." + fakeConsumer:
		f.deliver(reply, wireMessage{subject: reply,
			body: []byte(`{"type":"io.nats.jetstream.api.v1.consumer_info_response","stream_name":"S","name":"all",` +
				`"config":{"durable_name":"all","ack_policy":"explicit","ack_wait":30000000000,"max_deliver":-1}}`)}, "")
	case "$JS.API.CONSUMER.MSG.NEXT." + fakeStream + "." + fakeConsumer:
		f.pull = reply
		f.bring()
	case fakeSubject:
		f.deliver(fakeSubject, m, "") // whoever listens
		if reply != "" {
			f.deliver(reply, wireMessage{subject: reply, body: []byte(`{"stream":"S","seq":1}`)}, "")
		}
		f.behind = append(f.behind, m)
		f.bring()
	}
}

// bring answers a request with all that there is.
func (f *fakeNATS) bring() {
	if f.pull == "" || len(f.behind) == 0 {
		return
	}
	for _, m := range f.behind {
		f.deliver(f.pull, m, "$JS.ACK.S.all.1.1.1.0.0")
	}
	f.deliver(f.pull, wireMessage{subject: f.pull, header: []byte("NATS/1.0 408 Requests Pending\r\n\r\n")}, "")
	f.pull, f.behind = "", nil
}

// deliver sends a message to whoever has subscribed to a subject.
func (f *fakeNATS) deliver(to string, m wireMessage, reply string) {
	for subject, sid := range f.sids {
		if to != subject && !(strings.HasSuffix(subject, ".") && strings.HasPrefix(to, subject)) {
			continue
		}
		line := fmt.Sprintf("HMSG %s %s %s %d %d\r\n", m.subject, sid, reply, len(m.header), len(m.header)+len(m.body))
		if m.header == nil {
			line = fmt.Sprintf("MSG %s %s %s %d\r\n", m.subject, sid, reply, len(m.body))
		}
		f.write(slices.Concat([]byte(line), m.header, m.body, []byte("\r\n")))
	}
}

func (f *fakeNATS) write(data []byte) { _, _ = f.out.Write(data) } // to nobody, once the client has gone
