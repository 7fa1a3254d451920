// Package relaytest is the conformance suite of adapters for package relay: what every
// [relay.Publisher] and [relay.Subscriber] must do, whatever broker is behind it.
//
//	func TestConformance(t *testing.T) {
//		relaytest.Run(t, func(t *testing.T) relaytest.Setup {
//			subject := newSubject(t) // of this test only
//			return relaytest.Setup{Publisher: publisher(t), Subscriber: subscriber(t, subject), Destination: subject}
//		})
//	}
//
// It starts no broker and knows none: [Setup] has functions that stop one and start it again. Each
// case gets a Setup of its own.
package relaytest
