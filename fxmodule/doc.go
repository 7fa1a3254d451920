// Package fxmodule wires AsyncMonolith into an application built with go.uber.org/fx. It makes the
// registry, the producer, the scheduler, the store of poisoned messages and the processors. It
// starts the processors with the application and drains them when it stops.
//
//	fx.New(
//		fx.Provide(NewDB), // a *bun.DB
//		fxmodule.Module,
//		fxmodule.Consumers(NewReceiptConsumer),
//	)
//
// Everything it does can also be done without fx. It never closes what it did not open.
package fxmodule
