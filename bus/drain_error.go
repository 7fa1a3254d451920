package bus

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// DrainError is returned by outbox.Processor.Run when consumers still run after DrainTimeout,
// although their context was cancelled. Their messages are released and run again, unless they
// already count as failed because their timeout passed.
type DrainError struct {
	// Consumers has the consumer's name for each such run.
	Consumers []string
}

// Error implements error.
func (e *DrainError) Error() string {
	var names []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(e.Consumers))) {
		n := 0
		for _, other := range e.Consumers {
			if other == name {
				n++
			}
		}
		if names = append(names, strconv.Quote(name)); n > 1 {
			names[len(names)-1] += fmt.Sprintf(" x %d", n)
		}
	}
	return fmt.Sprintf("outbox: stopped with %d consumers still running: %s", len(e.Consumers), strings.Join(names, ", "))
}
