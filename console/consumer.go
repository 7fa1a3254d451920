package console

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// consumerPage is one consumer: what it does, and why it does not.
type consumerPage struct {
	Name     string
	Queue    admin.Queue
	At       time.Time
	Runs     chart
	Times    lines
	Slots    []slot
	Groups   []failing
	More     bool // groups
	Oldest   []admin.Message
	Why      *admin.Explanation
	Takers   []taker
	Failures []failing
	Parked   []admin.BlockedKey
}

// taker is a process that takes the consumer's messages.
type taker struct {
	admin.Process
	Consumer admin.ProcessConsumer
}

const (
	chartTime    = 48 * time.Hour
	slotTime     = 30 * time.Minute
	fleetTime    = 24 * time.Hour
	oldestShown  = 10
	parkedRead   = 1000 // keys of all consumers
	failingShown = 20
)

func (v *request) consumer() (page, error) {
	a := v.asks()
	name := a.text("name")
	if name == "" {
		a.fail("name is missing: it is that of a consumer.")
	}
	if err := a.err(); err != nil {
		return page{}, err
	}
	data := consumerPage{Name: name, Queue: admin.Queue{Consumer: name}}
	o, err := v.glance()
	if err != nil {
		return page{}, err
	}
	data.At = o.At
	if i := slices.IndexFunc(o.Queues, func(q admin.Queue) bool { return q.Consumer == name }); i >= 0 {
		data.Queue = o.Queues[i]
	}
	fleet, err := v.session.Processes(v.ctx(), fleetTime)
	if err != nil {
		return page{}, err
	}
	data.Takers = takersOf(fleet, name)
	for _, read := range []func(*consumerPage, []admin.Process) error{v.consumerChart, v.consumerFailures, v.consumerOldest, v.consumerParked} {
		if err := read(&data, fleet); err != nil {
			return page{}, err
		}
	}
	return page{Title: name, Data: data}, nil
}

func (v *request) consumerChart(data *consumerPage, _ []admin.Process) error {
	minutes, err := v.session.Consumers().Minutes(v.ctx(), chartTime, data.Name)
	if err != nil {
		return err
	}
	first := data.At.UTC().Truncate(slotTime).Add(slotTime - chartTime)
	data.Slots = slotsOf(first, minutes)
	data.Runs = columns(first, slotTime, int(chartTime/slotTime), slotWidth, linesHeight, minutes)
	data.Times = linesOf(data.Slots)
	return nil
}

func (v *request) consumerFailures(data *consumerPage, fleet []admin.Process) error {
	groups, more, err := v.session.Poisoned().Groups(v.ctx(), data.Name)
	if err != nil {
		return err
	}
	data.More = more
	known := map[string]bool{}
	for _, g := range groups {
		known[g.Fingerprint] = true
		data.Groups = append(data.Groups, failingGroup(g, fleet))
	}
	failures, err := v.session.Consumers().Failures(v.ctx(), data.Name, failingShown)
	for _, f := range failures {
		if !known[f.Fingerprint] { // none of its messages is poisoned yet
			data.Failures = append(data.Failures, failingNow(f, fleet))
		}
	}
	return err
}

func (v *request) consumerOldest(data *consumerPage, _ []admin.Process) error {
	var err error
	data.Oldest, _, err = v.session.Messages().List(v.ctx(), admin.Filter{Consumer: data.Name}, admin.Page{Size: oldestShown})
	if err != nil || len(data.Oldest) == 0 {
		return err
	}
	waits := slices.DeleteFunc(slices.Clone(data.Oldest), func(m admin.Message) bool { return m.State == admin.Leased })
	if len(waits) == 0 {
		waits = data.Oldest
	}
	oldest := slices.MinFunc(waits, func(a, b admin.Message) int { return a.AvailableAt.Compare(b.AvailableAt) })
	why, err := v.session.Messages().Explain(v.ctx(), oldest.ID)
	if err == nil {
		data.Why = &why
	}
	return ignoreGone(err)
}

// consumerParked lists keys whose messages wait for a poisoned one.
func (v *request) consumerParked(data *consumerPage, _ []admin.Process) error {
	found, err := v.session.Consumers().BlockedKeys(v.ctx(), parkedRead)
	for _, key := range found {
		if key.Consumer == data.Name && len(data.Parked) < pageSize {
			data.Parked = append(data.Parked, key)
		}
	}
	return err
}

// takersOf are the processes that take a consumer's messages, alive or lost.
func takersOf(fleet []admin.Process, name string) (takers []taker) {
	for _, p := range fleet {
		for _, c := range p.Consumers {
			if p.Status != admin.ProcessStopped && (c.Name == name || slices.Contains(c.Former, name)) {
				takers = append(takers, taker{p, c})
			}
		}
	}
	return takers
}

// failing is something that fails, and since when.
type failing struct {
	Consumer    string
	Fingerprint string
	ErrorType   string
	Sample      string
	Messages    int // poisoned
	Runs        int64
	FirstAt     time.Time
	LastAt      time.Time
	Since       string // in words, if a deploy may have begun it
}

func failingNow(f admin.FailureGroup, fleet []admin.Process) failing {
	return failing{Consumer: f.Consumer, Fingerprint: f.Fingerprint, ErrorType: f.ErrorType, Sample: f.Sample, Runs: f.Runs, FirstAt: f.FirstAt, LastAt: f.LastAt, Since: since(f, fleet)}
}

func failingGroup(g poison.Group, fleet []admin.Process) failing {
	f := failing{Consumer: g.Consumer, Fingerprint: g.Fingerprint, FirstAt: g.FirstAt, LastAt: g.LastAt}
	if g.Failure != nil {
		f = failingNow(*g.Failure, fleet)
		f.FirstAt, f.LastAt = earlier(f.FirstAt, g.FirstAt), later(f.LastAt, g.LastAt)
	}
	f.Messages = g.Messages
	return f
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

const deployTime = time.Hour // for what began after a deploy to be its work, perhaps

// since says which version met a failure first, and how soon after that came.
func since(f admin.FailureGroup, fleet []admin.Process) string {
	if f.FirstVersion == "" {
		return ""
	}
	var came time.Time
	for _, p := range fleet {
		if p.Version == f.FirstVersion && slices.ContainsFunc(p.Consumers, func(c admin.ProcessConsumer) bool { return p.Takes(f.Consumer, firstOf(c.PayloadTypes)) }) {
			came = earlier(came, p.StartedAt)
		}
	}
	if after := f.FirstAt.Sub(came); !came.IsZero() && after >= 0 && after <= deployTime {
		return duration(max(after, time.Second)) + " after " + f.FirstVersion + " started"
	}
	return "first met by " + f.FirstVersion
}

func firstOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}
