package broker

import (
	"context"
	"fmt"
	"time"
)

const (
	// patience is how long a cluster that has just been started may refuse what is asked of it.
	patience = time.Minute
	// request bounds one call to a broker.
	request = 5 * time.Second
)

// MissingError says that a broker cannot be had on this machine: what needs it is left out.
type MissingError struct {
	Broker string
	Err    error
}

// Error implements error.
func (e *MissingError) Error() string { return fmt.Sprintf("there is no %s: %v", e.Broker, e.Err) }

// Unwrap returns why.
func (e *MissingError) Unwrap() error { return e.Err }

// Address says where records go to, or come from. A process can tell it to another.
type Address struct {
	// URLs are those of the servers; their scheme tells which broker it is.
	URLs []string
	// Name is that of the stream, or the queue.
	Name string
	// Destination is what a record for it is published to.
	Destination string
	// Subscription is the name of a consumer of the stream. Empty if there is none.
	Subscription string
}

// Record is what was found in a place.
type Record struct {
	Subject string // of a message in a stream
	Headers map[string][]string
	Body    []byte
}

// Place is a stream or a queue of one measurement. It is for one goroutine.
type Place struct {
	Address
	place
}

type place interface {
	// Count returns how many records are there, about.
	Count(ctx context.Context) (int, error)
	// Read calls fn with each record, in their order, and may remove them.
	Read(ctx context.Context, fn func(Record) error) error
	// Drop removes the place.
	Drop(ctx context.Context) error
}

// eventually tries until it works, or the patience is over.
func eventually(ctx context.Context, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		trying, done := context.WithTimeout(ctx, request)
		err := try(trying)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
