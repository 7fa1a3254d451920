package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// confirmPage says what an action touches, before it is done.
type confirmPage struct {
	Action    string
	Verb      string
	Says      string
	Danger    bool
	Of        subject
	Pending   []admin.Message
	Poisoned  []poison.Message
	Gone      []int64 // chosen, and there no more
	Held      int     // pending ones that a process holds
	Paused    []string
	Consumer  *admin.Queue
	Schedule  *scheduleRow
	Version   *version
	Operation *operation
	Back      string // to come back to
	IDs       []int64
}

// Button is the text of the button.
func (p confirmPage) Button() string {
	if n := len(p.Pending) + len(p.Poisoned); n > 0 {
		return fmt.Sprintf("%s %s", p.Verb, plural(n, "message"))
	}
	return p.Verb
}

// Any reports whether there is anything left to do it to.
func (p confirmPage) Any() bool {
	return len(p.Pending)+len(p.Poisoned) > 0 || p.Of != pendingOnes && p.Of != poisonedOnes
}

func (v *request) confirm() (page, error) {
	a := v.asks()
	o := a.actionRequest()
	if o.action.direct {
		a.fail("This needs no confirmation.")
	}
	if err := a.err(); err != nil {
		return page{}, err
	}
	d := o.action
	data := confirmPage{Action: d.name, Verb: d.verb, Says: d.says, Danger: d.danger, Of: d.of, Back: v.cameFrom(o).String()}
	read := map[subject]func(*confirmPage, actionRequest) error{
		pendingOnes: v.confirmPending, poisonedOnes: v.confirmPoisoned, oneConsumer: v.confirmConsumer, oneSchedule: v.confirmSchedule, oneVersion: v.confirmVersion, oneOperation: v.confirmOperation,
	}[d.of]
	if err := read(&data, o); err != nil {
		return page{}, err
	}
	return page{Title: data.Title(), Tab: data.tab(), Data: data}, nil
}

// cameFrom is the page from which the action was requested.
func (v *request) cameFrom(o actionRequest) link {
	if to := v.back(v.query.Get("back")); to.path != "" {
		return to
	}
	if len(o.ids) == 1 {
		return linkTo("message", "id", o.ids[0])
	}
	return v.after(o)
}

// Title is what is asked.
func (p confirmPage) Title() string {
	switch {
	case p.Consumer != nil:
		return p.Verb + " " + p.Consumer.Consumer + "?"
	case p.Schedule != nil:
		return p.Verb + ": " + scheduleName(p.Schedule.Schedule) + "?"
	case p.Version != nil:
		return p.Verb + " " + p.Version.Title() + "?"
	case p.Operation != nil:
		return fmt.Sprintf("%s operation %d?", p.Verb, p.Operation.ID)
	default:
		return p.Button() + "?"
	}
}

func (p confirmPage) tab() string {
	return map[subject]string{pendingOnes: "messages", poisonedOnes: "poisoned", oneSchedule: "schedules", oneVersion: "projections", oneOperation: "operations"}[p.Of]
}

// mayDo is ErrForbidden unless the principal may do it to each of some consumers.
func (v *request) mayDo(a ops.Action, consumers ...string) error {
	for _, consumer := range consumers {
		if err := v.who.May(a, consumer); err != nil {
			return err
		}
	}
	return nil
}

func (v *request) confirmPending(data *confirmPage, o actionRequest) error {
	found, err := v.session.Messages().ListByID(v.ctx(), o.ids...)
	if err != nil {
		return err
	}
	var consumers []string
	for _, m := range found {
		data.IDs = append(data.IDs, m.ID)
		consumers = append(consumers, m.Consumer)
		if m.State == admin.Leased {
			data.Held++
		}
	}
	data.Pending = found
	data.leaveOut(o.ids)
	if err := v.mayDo(o.action.permission, consumers...); err != nil {
		return err
	}
	return v.pausedAmong(data, consumers)
}

func (v *request) confirmPoisoned(data *confirmPage, o actionRequest) error {
	found, _, err := v.session.Poisoned().List(v.ctx(), poison.Filter{IDs: o.ids}, admin.Page{Size: mostChosen})
	if err != nil {
		return err
	}
	var consumers []string
	for _, m := range found {
		data.IDs = append(data.IDs, m.ID)
		consumers = append(consumers, m.Consumer)
	}
	data.Poisoned = found
	data.leaveOut(o.ids)
	if err := v.mayDo(o.action.permission, consumers...); err != nil {
		return err
	}
	return v.pausedAmong(data, consumers)
}

// leaveOut notes which of those that were chosen are there no more.
func (p *confirmPage) leaveOut(chosen []int64) {
	for _, id := range chosen {
		if !slices.Contains(p.IDs, id) {
			p.Gone = append(p.Gone, id)
		}
	}
}

// pausedAmong notes consumers that are paused: what waits for them goes on waiting.
func (v *request) pausedAmong(data *confirmPage, consumers []string) (err error) {
	if !data.Danger {
		data.Paused, err = v.paused(consumers...)
	}
	return err
}

func (v *request) confirmConsumer(data *confirmPage, o actionRequest) error {
	if err := v.mayDo(o.action.permission, o.consumer); err != nil {
		return err
	}
	overview, err := v.glance()
	data.Consumer = &admin.Queue{Consumer: o.consumer}
	if i := slices.IndexFunc(overview.Queues, func(q admin.Queue) bool { return q.Consumer == o.consumer }); i >= 0 {
		data.Consumer = &overview.Queues[i]
	}
	return err
}

func (v *request) confirmSchedule(data *confirmPage, o actionRequest) error {
	if err := v.mayDo(o.action.permission, ""); err != nil {
		return err
	}
	found, err := v.session.Schedules().Get(v.ctx(), o.schedule)
	data.Schedule = &scheduleRow{found}
	return err
}

func (v *request) confirmVersion(data *confirmPage, o actionRequest) error {
	if err := v.mayDo(o.action.permission, ""); err != nil {
		return err
	}
	all, err := v.versions()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(v version) bool { return v.Name == o.projection && v.Version == o.version })
	if i < 0 {
		return httpError{http.StatusNotFound, "There is no such version of a projection."}
	}
	data.Version = &all[i]
	return nil
}

func (v *request) confirmOperation(data *confirmPage, o actionRequest) error {
	found, err := v.session.Operations().Get(v.ctx(), o.operation)
	if err != nil {
		return err
	}
	data.Operation = &operation{found}
	if o.action.permission == ops.ResumeOperation { // it takes what the operation itself does
		if err := v.mayDo(found.Action, consumerOf(found.Target)); err != nil {
			return err
		}
	}
	return v.mayDo(o.action.permission, consumerOf(found.Target))
}

// Numbers are ids in a sentence.
func (p confirmPage) Numbers() string {
	return strings.TrimPrefix(strings.TrimPrefix(messagesOf(p.Gone), "messages "), "message ")
}
