package contender

import (
	"fmt"
	"time"
)

// Kinds is how many types of messages an [App] has, each with a consumer of its own.
const Kinds = 10

// Task is the content of a message of an [App].
type Task struct {
	N     int64  `json:"n"`
	User  string `json:"user"`
	Email string `json:"email"`
	// Begun is when the transaction began that wrote it, in nanoseconds since 1970.
	Begun int64 `json:"begun"`
}

// Kind is what the consumer of a task does.
type Kind int

// KindOf returns the kind of the n-th task.
func KindOf(n int64) Kind { return Kind(n % Kinds) }

// Transactional reports whether the consumer inserts a row in a transaction.
func (k Kind) Transactional() bool { return k >= 4 && k < 8 }

// Takes is how long the consumer waits, as if for another service.
func (k Kind) Takes() time.Duration {
	switch {
	case k < 4:
		return time.Millisecond
	case k < 8:
		return 5 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// kind is a type for each [Kind], so that each has a payload type of its own.
type kind interface{ kind() Kind }

type (
	kind0 struct{}
	kind1 struct{}
	kind2 struct{}
	kind3 struct{}
	kind4 struct{}
	kind5 struct{}
	kind6 struct{}
	kind7 struct{}
	kind8 struct{}
	kind9 struct{}
)

func (kind0) kind() Kind { return 0 }
func (kind1) kind() Kind { return 1 }
func (kind2) kind() Kind { return 2 }
func (kind3) kind() Kind { return 3 }
func (kind4) kind() Kind { return 4 }
func (kind5) kind() Kind { return 5 }
func (kind6) kind() Kind { return 6 }
func (kind7) kind() Kind { return 7 }
func (kind8) kind() Kind { return 8 }
func (kind9) kind() Kind { return 9 }

// taskOf is a task of a kind: a payload for AsyncMonolith, arguments for River.
type taskOf[K kind] struct{ Task }

func (taskOf[K]) kind() Kind { return (*new(K)).kind() }

// PayloadType names the payload for AsyncMonolith.
func (t taskOf[K]) PayloadType() string { return fmt.Sprint("task.", int(t.kind())) }

// Kind names the arguments for River.
func (t taskOf[K]) Kind() string { return t.PayloadType() }

// payload is a task with its type.
type payload interface {
	PayloadType() string
	Kind() string
}

// withType returns the task with the type of its kind.
func (t Task) withType() payload {
	switch KindOf(t.N) {
	case 0:
		return taskOf[kind0]{t}
	case 1:
		return taskOf[kind1]{t}
	case 2:
		return taskOf[kind2]{t}
	case 3:
		return taskOf[kind3]{t}
	case 4:
		return taskOf[kind4]{t}
	case 5:
		return taskOf[kind5]{t}
	case 6:
		return taskOf[kind6]{t}
	case 7:
		return taskOf[kind7]{t}
	case 8:
		return taskOf[kind8]{t}
	}
	return taskOf[kind9]{t}
}
