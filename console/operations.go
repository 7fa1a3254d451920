package console

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// operationsPage is the audit: what people have changed, and are changing.
type operationsPage struct {
	Found  []operation
	Paging paging
	at     admin.Page
}

func (p *operationsPage) read(q *params) { p.at = q.page() }

func (p *operationsPage) load(r *request) error {
	found, next, err := r.session.Operations().List(r.Context(), p.at)
	if err != nil {
		return err
	}
	p.Paging = r.here().paging(next)
	for _, o := range found {
		if o.State != ops.Planned || operator.CreatedBy(o, r.who) { // only its author can start a plan, which has changed nothing
			p.Found = append(p.Found, operation{o})
		}
	}
	return nil
}

func (*operationsPage) layout() layout { return layout{title: "Operations", tab: "operations"} }

// operation is one as a page shows it.
type operation struct{ ops.Operation }

// Title names it in a sentence.
func (o operation) Title() string { return fmt.Sprintf("Operation %d: %s", o.ID, o.Action) }

// Open reports whether it is under way.
func (o operation) Open() bool {
	return slices.Contains([]ops.OperationState{ops.Waiting, ops.Canary, ops.Running, ops.Started}, o.State)
}

// Undoable reports whether it has changed nothing yet, and can be taken back.
func (o operation) Undoable() bool { return o.State == ops.Waiting }

// Stoppable reports whether it can be stopped where it is.
func (o operation) Stoppable() bool {
	return slices.Contains([]ops.OperationState{ops.Waiting, ops.Canary, ops.Running, ops.Paused}, o.State)
}

// Closable reports whether it is a change whose process must have died before it stored the outcome.
func (o operation) Closable() bool {
	return o.State == ops.Started && time.Since(o.CreatedAt) > changeForgotten
}

// changeForgotten is how long a change of few messages may be under way, as package ops has it.
const changeForgotten = 10 * time.Minute

// Tone is the colour of its state.
func (o operation) Tone() string {
	switch o.State {
	case ops.Paused:
		return "bad"
	case ops.Waiting, ops.Canary, ops.Running, ops.Started:
		return "info"
	case ops.Done:
		return "good"
	default:
		return ""
	}
}

// Messages is how many it is about, or 0 where that is not known.
func (o operation) Messages() int64 {
	if o.Preview != nil {
		return int64(o.Preview.Messages)
	}
	return int64(len(o.Target.IDs))
}

// OfMessages reports whether it is about messages, which are counted.
func (o operation) OfMessages() bool {
	return o.Target.Operation == 0 && (o.Target.Poisoned != nil || o.Target.Pending != nil || len(o.Target.IDs) > 0)
}

// Consumer is the one consumer that it is about, or empty.
func (o operation) Consumer() string { return consumerOf(o.Target) }

// Danger reports whether what it does cannot be taken back.
func (o operation) Danger() bool {
	return slices.Contains([]ops.Action{ops.Cancel, ops.Discard, ops.Rebuild, ops.Promote}, o.Action)
}

// Size says how many messages it is about.
func (o operation) Size() string {
	if !o.OfMessages() {
		return ""
	}
	messages := plural(o.Messages(), "message")
	if o.Preview != nil && o.Preview.First {
		return "the first " + messages
	}
	return messages
}

// Progress is how much of it is done, of 1000.
func (o operation) Progress() int64 {
	all := o.Messages()
	if o.State == ops.Done {
		return 1000
	}
	if all <= 0 {
		return 0
	}
	return min(1000, (o.Changed+o.Skipped)*1000/all)
}

// ToGo is how long it takes at its rate.
func (o operation) ToGo() time.Duration {
	left := o.Messages() - o.Changed - o.Skipped
	if o.Rate <= 0 || left <= 0 {
		return 0
	}
	return time.Duration(left) * time.Second / time.Duration(o.Rate)
}

// About says what it is about.
func (o operation) About() string {
	switch t := o.Target; {
	case t.Operation != 0:
		return fmt.Sprintf("operation %d", t.Operation)
	case len(t.IDs) > 0:
		return messagesOf(t.IDs)
	case t.Poisoned != nil:
		f := poisonedFilter{*o.Target.Poisoned}
		return "poisoned messages" + o.narrowed(f.Fields(), f.IDs)
	case t.Pending != nil:
		return "pending messages" + o.narrowed(pendingOf(*t.Pending).Fields(), nil)
	case t.Schedule != 0:
		return fmt.Sprintf("schedule %d", t.Schedule) + timesChanged(t)
	case t.Projection != "":
		return fmt.Sprintf("projection %s, version %d", t.Projection, max(t.Version, 1))
	default:
		return cmp.Or(t.Consumer, "–")
	}
}

// timesChanged says how the times of a schedule changed.
func timesChanged(t ops.Target) string {
	if t.Expression == "" {
		return ""
	}
	return fmt.Sprintf(": %s in %s → %s in %s", t.OldExpression, t.OldZone, t.Expression, t.Zone)
}

// narrowed says which messages a filter selects.
func (o operation) narrowed(fields url.Values, ids []int64) (text string) {
	var said []string
	if o.Hidden {
		said = append(said, "hidden text")
	}
	if len(ids) > 0 {
		said = append(said, "ids "+idsText(ids))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "consumer" {
			said = append(said, name+" "+fields.Get(name))
		}
	}
	if consumer := fields.Get("consumer"); consumer != "" {
		text = " of " + consumer
	}
	if len(said) == 0 {
		return text + ", all of them"
	}
	return text + " with " + strings.Join(said, ", ")
}

// messagesOf names messages by their ids.
func messagesOf(ids []int64) string {
	if len(ids) == 1 {
		return "message " + idsText(ids)
	}
	return "messages " + idsText(ids)
}

// idsText names the first of some ids.
func idsText(ids []int64) string {
	const named = 5
	var names []string
	for _, id := range ids[:min(len(ids), named)] {
		names = append(names, fmt.Sprint(id))
	}
	text := strings.Join(names, ", ")
	if more := len(ids) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Went says how its canary is, or was.
func (o operation) Went() string {
	switch {
	case o.State == ops.Waiting || o.State == ops.Canary:
		return "run first"
	case o.Changed == 0 && !o.Open():
		return "did not run"
	default:
		return "ran first"
	}
}

// aboutLink is the page of what it is about, or empty.
func (o operation) aboutLink() string {
	switch t := o.Target; {
	case t.Operation != 0:
		return linkTo("operation", "id", t.Operation).String()
	case len(t.IDs) == 1:
		return linkTo("message", "id", t.IDs[0]).String()
	case t.Poisoned != nil && len(t.Poisoned.IDs) > 0:
		return "" // no page shows a filter of ids
	case t.Poisoned != nil:
		return link{"group", poisonedFilter{*t.Poisoned}.Fields()}.String()
	case t.Pending != nil:
		return link{"messages", pendingOf(*t.Pending).Fields()}.String()
	case t.Schedule != 0:
		return linkTo("schedule", "id", t.Schedule).String()
	case t.Projection != "":
		return linkTo("projection", "name", t.Projection, "version", max(t.Version, 1)).String()
	case t.Consumer != "":
		return linkTo("consumer", "name", t.Consumer).String()
	default:
		return ""
	}
}

// consumerOf is the one consumer that a target is about, or empty.
func consumerOf(t ops.Target) string {
	switch {
	case t.Poisoned != nil:
		return t.Poisoned.Consumer
	case t.Pending != nil:
		return t.Pending.Consumer
	default:
		return t.Consumer
	}
}
