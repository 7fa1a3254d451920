package console

import (
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// poisonedPage is groups of poisoned messages.
type poisonedPage struct {
	Consumer  string
	Consumers []string
	Groups    []failing
	More      bool
}

func (v *request) poisoned() (page, error) {
	a := v.asks()
	data := poisonedPage{Consumer: a.text("consumer")}
	if err := a.err(); err != nil {
		return page{}, err
	}
	groups, more, err := v.session.Poisoned().Groups(v.ctx(), data.Consumer)
	if err != nil {
		return page{}, err
	}
	fleet, err := v.session.Processes(v.ctx(), fleetTime)
	if err != nil {
		return page{}, err
	}
	for _, g := range groups {
		data.Groups = append(data.Groups, failingGroup(g, fleet))
	}
	data.More = more
	data.Consumers, err = v.consumers()
	return page{Title: "Poisoned messages", Tab: "poisoned", Data: data}, err
}

// groupPage is poisoned messages that match a filter, such as those of a group.
type groupPage struct {
	Filter   poisonedFilter
	Count    int
	Fails    *failing // what they have in common, if they are of a group
	Versions []string // that run now
	Live     bool     // some process that takes them does
	Found    []poison.Message
	Paging   paging
	Paused   []string // its consumer, if it is
}

// poisonedFilter is a filter of poisoned messages as an address has it.
type poisonedFilter struct {
	poison.Filter
}

// Fields are the filter as fields of a form.
func (f poisonedFilter) Fields() url.Values {
	id := ""
	if f.MessageID != uuid.Nil {
		id = f.MessageID.String()
	}
	return linkTo("", "consumer", f.Consumer, "fingerprint", f.Fingerprint, "type", f.PayloadType, "key", f.OrderingKey, "message", id, "error", f.Error, "since", instantText(f.PoisonedAfter), "until", instantText(f.PoisonedBefore)).query
}

// Of reports whether it is a group, as a whole.
func (f poisonedFilter) Of() bool { return f.Consumer != "" && f.Fingerprint != "" }

// Since is as a field has it.
func (f poisonedFilter) Since() string { return instantText(f.PoisonedAfter) }

// Until is as a field has it.
func (f poisonedFilter) Until() string { return instantText(f.PoisonedBefore) }

func instantText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.999999")
}

func (a *asked) poisoned() poisonedFilter {
	return poisonedFilter{poison.Filter{
		Consumer: a.text("consumer"), Fingerprint: a.text("fingerprint"), PayloadType: a.text("type"), OrderingKey: a.text("key"), MessageID: a.uuid("message"), Error: a.text("error"),
		PoisonedAfter: a.instant("since"), PoisonedBefore: a.instant("until"),
	}}
}

func (v *request) group() (page, error) {
	a := v.asks()
	data := groupPage{Filter: a.poisoned()}
	at := a.page()
	if err := a.err(); err != nil {
		return page{}, err
	}
	filter := data.Filter.Filter
	found, next, err := v.session.Poisoned().List(v.ctx(), filter, at)
	if err != nil {
		return page{}, err
	}
	data.Found, data.Paging = found, v.paging(next)
	if data.Count, err = v.session.Poisoned().Count(v.ctx(), filter); err != nil {
		return page{}, err
	}
	title := "Poisoned messages"
	if data.Filter.Of() {
		title = "Poisoned messages of " + filter.Consumer
		if err := v.groupFacts(&data); err != nil {
			return page{}, err
		}
	}
	return page{Title: title, Tab: "poisoned", Data: data}, nil
}

// groupFacts is what is known of a group beside its messages.
func (v *request) groupFacts(data *groupPage) error {
	filter := data.Filter
	fleet, err := v.session.Processes(v.ctx(), fleetTime)
	if err != nil {
		return err
	}
	for _, t := range takersOf(fleet, filter.Consumer) {
		if t.Status != admin.ProcessAlive {
			continue
		}
		data.Live = true
		if version := t.Version; version != "" && !slices.Contains(data.Versions, version) {
			data.Versions = append(data.Versions, version)
		}
	}
	groups, _, err := v.session.Poisoned().Groups(v.ctx(), filter.Consumer)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(groups, func(g poison.Group) bool { return g.Fingerprint == filter.Fingerprint }); i >= 0 {
		fails := failingGroup(groups[i], fleet)
		data.Fails = &fails
	}
	if data.Fails == nil {
		failures, err := v.session.Consumers().Failures(v.ctx(), filter.Consumer, 200)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(failures, func(f admin.FailureGroup) bool { return f.Fingerprint == filter.Fingerprint }); i >= 0 {
			fails := failingNow(failures[i], fleet)
			data.Fails = &fails
		}
	}
	data.Paused, err = v.paused(filter.Consumer)
	return err
}

// paused are those among some consumers that are paused.
func (v *request) paused(consumers ...string) (paused []string, err error) {
	o, err := v.glance()
	for _, q := range o.Queues {
		if !q.PausedAt.IsZero() && slices.Contains(consumers, q.Consumer) {
			paused = append(paused, q.Consumer)
		}
	}
	return paused, err
}
