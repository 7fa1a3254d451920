// Package brokertest is the conformance suite of adapters for package relay: what every
// [broker.Publisher] and [broker.Subscriber] must do, whatever broker is behind it.
//
//	func TestConformance(t *testing.T) {
//		brokertest.Run(t, func(t *testing.T) brokertest.Setup {
//			subject := newSubject(t) // of this test only
//			return brokertest.Setup{Publisher: publisher(t), Subscriber: subscriber(t, subject), Destination: subject}
//		})
//	}
//
// It starts no broker and knows none: [Setup] has functions that stop one and start it again. Each
// case gets a Setup of its own.
package brokertest
