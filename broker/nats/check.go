package nats

import (
	"context"
	"errors"
	"fmt"
)

// Check reports whether each subject has a stream, and whether the stream has the settings that a
// relay needs: it acknowledges, and its duplicate window is at least PublisherConfig.Timeout. The
// error joins all findings. Call it at the application's start, with the destinations of its
// routes.
func (p *Publisher) Check(ctx context.Context, subjects ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("no answer within %s", p.timeout))
	defer cancel()
	var errs []error
	for _, subject := range subjects {
		if err := p.checkSubject(ctx, subject); err != nil {
			errs = append(errs, fmt.Errorf("nats: check subject %q: %w", subject, err))
		}
	}
	return errors.Join(errs...)
}

func (p *Publisher) checkSubject(ctx context.Context, subject string) error {
	p.said.look()
	if !p.nc.IsConnected() {
		return p.unavailable(errDisconnected)
	}
	name, err := p.js.StreamNameBySubject(ctx, subject)
	if err != nil {
		return fmt.Errorf("find its stream: %w", p.said.with(err))
	}
	stream, err := p.js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", name, err)
	}
	var errs []error
	config := stream.CachedInfo().Config
	if config.NoAck {
		errs = append(errs, fmt.Errorf("stream %s has no_ack set: publishes to the stream are never confirmed", name))
	}
	if config.Duplicates < p.timeout {
		errs = append(
			errs,
			fmt.Errorf("stream %s drops duplicates for %s, want at least %s (duplicate_window): a record that is published again would arrive twice",
				name, config.Duplicates, p.timeout),
		)
	}
	return errors.Join(errs...)
}
