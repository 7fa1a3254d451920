package console

import (
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
)

// queues are those of all consumers.
type queues []admin.Queue

// of is the queue of a consumer. It is empty if the consumer has none.
func (all queues) of(consumer string) admin.Queue {
	if i := slices.IndexFunc(all, func(q admin.Queue) bool { return q.Consumer == consumer }); i >= 0 {
		return all[i]
	}
	return admin.Queue{Consumer: consumer}
}

// names are those of the consumers.
func (all queues) names() (names []string) {
	for _, q := range all {
		names = append(names, q.Consumer)
	}
	return names
}

// paused are those among some consumers that are paused.
func (all queues) paused(consumers ...string) (paused []string) {
	for _, q := range all {
		if !q.PausedAt.IsZero() && slices.Contains(consumers, q.Consumer) {
			paused = append(paused, q.Consumer)
		}
	}
	return paused
}
