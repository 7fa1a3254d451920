package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/asyncmonolith/asyncmonolith-go/examples/services/shipping"
)

// broker is a NATS server in this process. Yours are three elsewhere.
type broker struct {
	server   *server.Server
	nc       *nats.Conn
	consumer jetstream.Consumer
}

// startBroker starts a server, and makes the stream and shipping's consumer of it: these belong
// to the operator of the broker. docs/brokers/nats.md has the settings that matter on three servers.
func startBroker(ctx context.Context, dir string) (b *broker, err error) {
	b = &broker{}
	b.server, err = server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: filepath.Join(dir, "jetstream"), JetStreamMaxStore: 64 << 20, JetStreamMaxMemory: 1 << 20,
	})
	if err != nil {
		return nil, err
	}
	b.server.Start()
	if err = b.prepare(ctx); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

func (b *broker) prepare(ctx context.Context) (err error) {
	if !b.server.ReadyForConnections(10 * time.Second) {
		return errors.New("the broker is not ready within 10 s")
	}
	if b.nc, err = nats.Connect(b.server.ClientURL()); err != nil {
		return err
	}
	js, err := jetstream.New(b.nc)
	if err != nil {
		return err
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	if err != nil {
		return err
	}
	b.consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable:   shipping.Consumer,
		AckPolicy: jetstream.AckExplicitPolicy,
		AckWait:   2 * time.Second, // after which what a killed process had is delivered again; 30 s unless set
	})
	return err
}

// stop waits until the server is gone.
func (b *broker) stop() {
	if b.nc != nil {
		b.nc.Close()
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// counts tells how many records there are, how often they were delivered, and how many of them
// are not acknowledged.
func (b *broker) counts(ctx context.Context) (records, deliveries, open int, err error) {
	info, err := b.consumer.Info(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	return int(info.Delivered.Stream + info.NumPending), int(info.Delivered.Consumer), int(info.NumPending) + info.NumAckPending, nil
}
