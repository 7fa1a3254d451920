package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// confirmPage says what an action touches, before it is done.
type confirmPage struct {
	Action    string
	Verb      string
	Says      string
	Danger    bool
	Pending   []admin.Message
	Poisoned  []poison.Message
	Consumed  []admin.ConsumedMessage
	Gone      []int64 // of those that were chosen
	Held      int     // by a process
	Paused    []string
	Consumer  *admin.Queue
	Schedule  *scheduleRow
	Times     *scheduleTimes // that it is to have, if that is what changes
	Reason    string
	Version   *version
	Operation *operation
	Back      string // to come back to
	IDs       []int64
	args      actionRequest
}

func (p *confirmPage) read(q *params) {
	p.args.read(q)
	if p.args.action.direct {
		q.fail("This action needs no confirmation.")
	}
}

func (p *confirmPage) load(r *request) error {
	do := p.args.action
	p.Action, p.Verb, p.Says, p.Danger, p.Reason = do.name, do.verb, do.says, do.danger, p.args.reason
	back := r.pageAt(p.args.back)
	if back.path == "" {
		back = p.args.about()
	}
	p.Back = back.String()
	switch do.of {
	case pendingOnes:
		return p.loadPending(r)
	case poisonedOnes:
		return p.loadPoisoned(r)
	case consumedOnes:
		return p.loadConsumed(r)
	case oneOperation:
		return p.loadOperation(r)
	}
	if err := operator.May(r.session, do.permission, p.args.consumer); err != nil {
		return err
	}
	switch do.of {
	case oneConsumer:
		return p.loadConsumer(r)
	case oneSchedule:
		return p.loadSchedule(r)
	default:
		return p.loadVersion(r)
	}
}

func (p *confirmPage) layout() layout { return layout{title: p.Title(), tab: p.args.action.of.tab()} }

// Title is the question.
func (p *confirmPage) Title() string {
	switch {
	case p.Consumer != nil:
		return p.verbWith(p.Consumer.Consumer) + "?"
	case p.Schedule != nil:
		return p.verbWith(p.Schedule.name()) + "?"
	case p.Version != nil:
		return p.verbWith(p.Version.Title()) + "?"
	case p.Operation != nil:
		return p.verbWith(fmt.Sprintf("operation %d", p.Operation.ID)) + "?"
	default:
		return p.Button() + "?"
	}
}

// Button is the text of the button.
func (p *confirmPage) Button() string {
	if n := len(p.IDs); n > 0 {
		return p.verbWith(plural(n, "message"))
	}
	return p.Verb
}

// verbWith puts the object behind the first word of the verb: "Run 3 messages now".
func (p *confirmPage) verbWith(object string) string {
	verb, rest, more := strings.Cut(p.Verb, " ")
	if !more {
		return verb + " " + object
	}
	return verb + " " + object + " " + rest
}

// Any reports whether there is anything left to do it to.
func (p *confirmPage) Any() bool { return len(p.IDs) > 0 || len(p.args.ids) == 0 }

// Numbers are the ids in Gone in a sentence.
func (p *confirmPage) Numbers() string { return idsText(p.Gone) }

func (p *confirmPage) loadPending(r *request) (err error) {
	if p.Pending, err = r.session.Messages().ListByID(r.Context(), p.args.ids...); err != nil {
		return err
	}
	var consumers []string
	for _, m := range p.Pending {
		p.IDs, consumers = append(p.IDs, m.ID), append(consumers, m.Consumer)
		if m.State == admin.Leased {
			p.Held++
		}
	}
	return p.checkMessages(r, consumers)
}

func (p *confirmPage) loadPoisoned(r *request) (err error) {
	p.Poisoned, _, err = r.session.Poisoned().List(r.Context(), poison.Filter{IDs: p.args.ids}, admin.Page{Size: mostChosen})
	if err != nil {
		return err
	}
	var consumers []string
	for _, m := range p.Poisoned {
		p.IDs, consumers = append(p.IDs, m.ID), append(consumers, m.Consumer)
	}
	return p.checkMessages(r, consumers)
}

func (p *confirmPage) loadConsumed(r *request) (err error) {
	if p.Consumed, err = r.session.Consumed().ListByID(r.Context(), p.args.ids...); err != nil {
		return err
	}
	var consumers []string
	for _, m := range p.Consumed {
		p.IDs, consumers = append(p.IDs, m.ID), append(consumers, m.Consumer)
	}
	return p.checkMessages(r, consumers)
}

// checkMessages sets which of the chosen messages are gone, and which of their consumers are paused.
func (p *confirmPage) checkMessages(r *request, consumers []string) error {
	for _, id := range p.args.ids {
		if !slices.Contains(p.IDs, id) {
			p.Gone = append(p.Gone, id)
		}
	}
	for _, consumer := range consumers {
		if err := operator.May(r.session, p.args.action.permission, consumer); err != nil {
			return err
		}
	}
	if p.Danger {
		return nil
	}
	all, err := r.queues()
	p.Paused = all.paused(consumers...)
	return err
}

func (p *confirmPage) loadConsumer(r *request) error {
	all, err := r.queues()
	queue := all.of(p.args.consumer)
	p.Consumer = &queue
	return err
}

func (p *confirmPage) loadSchedule(r *request) error {
	found, err := r.session.Schedules().Get(r.Context(), p.args.schedule)
	p.Schedule = &scheduleRow{found}
	if err == nil && p.args.action.permission == ops.UpdateSchedule {
		p.Times = timesOf(cmp.Or(p.args.expression, found.Expression), cmp.Or(p.args.zone, found.Zone))
	}
	return err
}

func (p *confirmPage) loadVersion(r *request) error {
	all, err := loadVersions(r)
	if err != nil {
		return err
	}
	found, err := all.of(p.args.projection, p.args.version)
	p.Version = &found
	return err
}

func (p *confirmPage) loadOperation(r *request) error {
	found, err := r.session.Operations().Get(r.Context(), p.args.operation)
	if err != nil {
		return err
	}
	p.Operation = &operation{found}
	if p.args.action.permission == ops.ResumeOperation { // the operation's own action is needed, too
		if err := operator.May(r.session, found.Action, consumerOf(found.Target)); err != nil {
			return err
		}
	}
	return operator.May(r.session, p.args.action.permission, consumerOf(found.Target))
}
