package brokertest_test

import (
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/brokertest"
)

// A test of an adapter. Each case gets a Setup of its own.
func ExampleRun() {
	var (
		t          *testing.T // of func TestConformance(t *testing.T)
		publisher  func(t *testing.T) broker.Publisher
		subscriber func(t *testing.T, subject string) broker.Subscriber
		newSubject func(t *testing.T) string
	)
	brokertest.Run(t, func(t *testing.T) brokertest.Setup {
		subject := newSubject(t) // of this test only
		return brokertest.Setup{Publisher: publisher(t), Subscriber: subscriber(t, subject), Destination: subject}
	})
}
