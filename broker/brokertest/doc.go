// Package brokertest is the conformance suite for adapters of brokers: it tests what packages relay
// and inbox need of a [broker.Publisher] and a [broker.Subscriber].
//
//	func TestConformance(t *testing.T) {
//		brokertest.Run(t, func(t *testing.T) brokertest.Setup {
//			subject := newSubject(t) // of this test only
//			return brokertest.Setup{Publisher: publisher(t), Subscriber: subscriber(t, subject), Destination: subject}
//		})
//	}
//
// It starts no broker. [Setup] has functions that stop one and start it again. Each case gets a
// Setup of its own.
package brokertest
