//go:build unix

package rabbitmq_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

const benchBatch = 256

// BenchmarkPublish publishes batches of 256 records of 120 bytes, four at once; an operation is a batch.
func BenchmarkPublish(b *testing.B) {
	nodes := brokers.FindRabbitMQ(b)
	queue := rand.Text()
	declare(b, nodes, queue)
	publisher := newPublisher(b, nodes)
	b.ResetTimer()
	b.SetParallelism(2) // times the processors
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := errors.Join(publisher.Publish(b.Context(), batch(queue))...); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkSubscribe receives and acknowledges what waits; an operation is 256 records.
func BenchmarkSubscribe(b *testing.B) {
	nodes := brokers.FindRabbitMQ(b)
	queue := rand.Text()
	declare(b, nodes, queue)
	publisher := newPublisher(b, nodes)
	for range b.N {
		testapp.OK(b, errors.Join(publisher.Publish(b.Context(), batch(queue))...))
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	left := b.N * benchBatch
	b.ResetTimer()
	err := newSubscriber(b, nodes, queue).Subscribe(ctx, func(_ context.Context, records []broker.Record) error {
		if left -= len(records); left <= 0 {
			cancel()
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "records/s")
}

// batch makes records of CloudEvents for a queue.
func batch(queue string) []broker.Record {
	records := make([]broker.Record, benchBatch)
	prefix := rand.Text()
	for i := range records {
		id := prefix + strconv.Itoa(i)
		records[i] = broker.Record{
			Destination: queue, ID: id, ContentType: "application/json", Body: make([]byte, 120),
			Attributes: map[string]string{"specversion": "1.0", "id": id, "source": "/orders", "type": "OrderPlaced"},
			Headers:    map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"},
		}
	}
	return records
}
