package rabbitmq

import (
	"reflect"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/broker"

	amqp "github.com/rabbitmq/amqp091-go"
)

// These tests are internal: they look at what is on the wire, which RabbitMQ shows to others.

func TestHeadersAreThoseOfCloudEvents(t *testing.T) {
	t.Parallel()
	m, err := message(broker.Record{
		Destination: "orders", ID: "17", ContentType: "application/json", Key: "customer",
		Attributes: map[string]string{"id": "17", "type": "Placed"},
		Headers:    map[string]string{"traceparent": "00-ab-cd-01", "CC": "other", "x-delay": "1"},
	}, 131072)
	want := amqp.Publishing{
		MessageId: "17", ContentType: "application/json", DeliveryMode: amqp.Persistent,
		Headers: amqp.Table{
			"cloudEvents_id": "17", "cloudEvents_type": "Placed", "traceparent": "00-ab-cd-01", "asyncmonolith-key": "customer",
			"asyncmonolith-h-CC": "other", "asyncmonolith-h-x-delay": "1", "asyncmonolith-tombstone": "true",
		},
	}
	if err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("got %+v and %v, want %+v", m, err, want)
	}
}

func TestMessagesOfOthersAreRead(t *testing.T) {
	t.Parallel()
	got := record(&amqp.Delivery{RoutingKey: "k", MessageId: "1", Headers: amqp.Table{
		"cloudEvents:type": "Placed", "count": int32(3), "raw": []byte("b"), "x-death": []any{amqp.Table{}}, "none": nil,
		"x-delivery-count": int64(2),
	}})
	want := broker.Record{
		Destination: "k", ID: "1", Body: []byte{}, Attributes: map[string]string{"type": "Placed"},
		Headers: map[string]string{"count": "3", "raw": "b"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestWhatDoesNotFitIsSaid(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	for want, r := range map[string]broker.Record{
		"routing key":  {Destination: long},
		"content type": {ContentType: long},
		"header":       {Headers: map[string]string{long: ""}},
		"frame":        {Headers: map[string]string{"a": strings.Repeat(long, 500)}},
	} {
		if _, err := message(r, 131072); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestURLsAreCheckedWithoutTellingThem(t *testing.T) {
	t.Parallel()
	for _, one := range []string{"http://user:secret@host", "amqp://user:secret@host:port/", "amqp://user:sec%ret@host",
		"amqp://user:secret@ho st",
		// What begins a path, a query or a fragment ends the host, so that the password is its port.
		"amqp://user:secret#1@host", "amqp://user:secret/1@host", "amqp://user:secret?1@host"} {
		_, err := NewPublisher(PublisherConfig{URLs: []string{one}, Timeout: -1})
		if err == nil || strings.Contains(err.Error(), "sec") || !strings.Contains(err.Error(), "Timeout") {
			t.Errorf("%s: got %v, want what is wrong, and no password", one, err)
		}
	}
	if _, err := NewSubscriber(SubscriberConfig{Batch: -1}); err == nil || !strings.Contains(err.Error(), "URLs") ||
		!strings.Contains(err.Error(), "Queue") || !strings.Contains(err.Error(), "Batch") {
		t.Errorf("an empty subscriber: got %v, want URLs, Queue and Batch said", err)
	}
}
