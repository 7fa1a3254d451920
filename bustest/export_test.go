package bustest

import (
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Schedules stands for what a [Kit] finds in its database, which tests without one do not
// have.
type Schedules []schedule.Schedule

func (s Schedules) scheduled() ([]schedule.Schedule, bus.Codec, error) { return s, bus.JSON{}, nil }
