// Package fxmodule wires AsyncMonolith into an application built with
// go.uber.org/fx: it makes the registry, the producer, the scheduler, the store
// of poisoned messages and the processors, starts the processors with the
// application and drains them when it stops.
//
//	fx.New(
//		fx.Provide(NewDB), // a *bun.DB
//		fxmodule.Module,
//		fxmodule.Consumers(NewReceiptConsumer),
//	)
//
// It does nothing that cannot be done without fx, and it never closes what it did not open.
package fxmodule
