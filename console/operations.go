package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// operationsPage is what people have changed, and are changing: the audit.
type operationsPage struct {
	Found  []operation
	Paging paging
}

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

// Closable reports whether it is a change whose process must have died before it was known what became of it.
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
	switch {
	case o.Preview != nil:
		return int64(o.Preview.Messages)
	default:
		return int64(len(o.Target.IDs))
	}
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
	if o.Preview != nil && o.Preview.Incomplete {
		return "messages, which took too long to count"
	}
	if o.Preview != nil && o.Preview.First {
		return "the first " + plural(o.Messages(), "message")
	}
	if o.Preview != nil && o.Preview.More {
		return "at least " + plural(o.Messages(), "message")
	}
	return plural(o.Messages(), "message")
}

// endless reports whether the number of its messages is not known.
func (o operation) endless() bool { return o.Preview != nil && o.Preview.More && !o.Preview.First }

// Progress is how much of it is done, of 1000.
func (o operation) Progress() int64 {
	all := o.Messages()
	if o.State == ops.Done {
		return 1000
	}
	if all <= 0 || o.endless() {
		return 0
	}
	return min(1000, (o.Changed+o.Skipped)*1000/all)
}

// ToGo is how long it takes at its rate.
func (o operation) ToGo() time.Duration {
	left := o.Messages() - o.Changed - o.Skipped
	if o.Rate <= 0 || left <= 0 || o.endless() {
		return 0
	}
	return time.Duration(left) * time.Second / time.Duration(o.Rate)
}

// About says what it is about.
func (o operation) About() string {
	t := o.Target
	var said []string
	say := func(name, value string) {
		if value != "" {
			said = append(said, name+" "+value)
		}
	}
	if o.Hidden {
		said = append(said, "what is hidden")
	}
	switch {
	case t.Operation != 0:
		return fmt.Sprintf("operation %d", t.Operation)
	case len(t.IDs) > 0:
		return messagesOf(t.IDs)
	case t.Poisoned != nil:
		f := o.poisoned()
		if len(f.IDs) > 0 {
			say("ids among", strings.TrimPrefix(strings.TrimPrefix(messagesOf(f.IDs), "messages "), "message "))
		}
		fields := f.Fields()
		fields.Del("consumer")
		for name, values := range ordered(fields) {
			say(name, values)
		}
		return "poisoned messages" + of(f.Consumer, said)
	case t.Pending != nil:
		f := pendingOf(*t.Pending)
		fields := f.Fields()
		fields.Del("consumer")
		for name, values := range ordered(fields) {
			say(name, values)
		}
		return "pending messages" + of(f.Consumer, said)
	case t.Schedule != 0:
		return fmt.Sprintf("schedule %d", t.Schedule)
	case t.Projection != "":
		return fmt.Sprintf("projection %s, version %d", t.Projection, max(t.Version, 1))
	default:
		return cmp.Or(t.Consumer, "–")
	}
}

func of(consumer string, said []string) (text string) {
	if consumer != "" {
		text = " of " + consumer
	}
	if len(said) == 0 {
		return text + ", all of them"
	}
	return text + " with " + strings.Join(said, ", ")
}

// messagesOf names messages by their ids, the first of them.
func messagesOf(ids []int64) string {
	const named = 5
	var names []string
	for _, id := range ids[:min(len(ids), named)] {
		names = append(names, fmt.Sprint(id))
	}
	text := "message " + strings.Join(names, ", ")
	if len(ids) > 1 {
		text = "messages " + strings.Join(names, ", ")
	}
	if more := len(ids) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (v *request) operations() (page, error) {
	a := v.asks()
	at := a.page()
	if err := a.err(); err != nil {
		return page{}, err
	}
	found, next, err := v.session.Operations().List(v.ctx(), at)
	if err != nil {
		return page{}, err
	}
	data := operationsPage{Paging: v.paging(next)}
	for _, o := range found {
		if o.State != ops.Planned || o.CreatedBy(v.who) { // the plan of another principal has changed nothing, and only that one can start it
			data.Found = append(data.Found, operation{o})
		}
	}
	return page{Title: "Operations", Tab: "operations", Data: data}, nil
}

// operationPage is one operation.
type operationPage struct {
	operation
	Mine    bool     // who looks has planned it
	Expired bool     // it is a plan that can be started no more
	Paused  []string // consumers of it that are
	Back    string
	At      time.Time // when it was looked at
	Runner  bool      // a live process can carry out operations
}

const (
	planTime  = 10 * time.Minute // for which a plan can be started, see ops.Session.Start
	lateStart = 30 * time.Second // after it was to begin
)

// Due reports whether it waits although the time to begin is over.
func (o operationPage) Due() bool {
	return o.State == ops.Waiting && o.At.Sub(o.StartsAt) >= time.Second
}

// Late reports whether it waits for longer than a runner with room takes to find it.
func (o operationPage) Late() bool { return o.Due() && o.At.Sub(o.StartsAt) > lateStart }

// Orphan reports whether it takes a runner to go on, or would, and none is known.
func (o operationPage) Orphan() bool {
	return !o.Runner && slices.Contains([]ops.OperationState{ops.Planned, ops.Waiting, ops.Canary, ops.Running}, o.State)
}

// Moving reports whether a runner carries it out.
func (o operationPage) Moving() bool {
	return o.Runner && (o.State == ops.Canary || o.State == ops.Running)
}

// Went says how its canary is, or was.
func (o operation) Went() string {
	switch {
	case o.State == ops.Waiting || o.State == ops.Canary:
		return "go first"
	case o.Changed == 0 && !o.Open():
		return "were to go first"
	default:
		return "went first"
	}
}

func (v *request) operation() (page, error) {
	a := v.asks()
	id := a.needID("id")
	if err := a.err(); err != nil {
		return page{}, err
	}
	found, err := v.session.Operations().Get(v.ctx(), id)
	if err != nil {
		return page{}, err
	}
	data := operationPage{operation: operation{found}, At: time.Now()}
	data.Mine = found.CreatedBy(v.who)
	data.Expired = found.State == ops.Planned && time.Since(found.CreatedAt) > planTime
	if data.Orphan() { // until one is found
		if data.Runner, err = v.session.Operations().HasRunner(v.ctx()); err != nil {
			return page{}, err
		}
	}
	if found.State == ops.Planned && !data.Danger() && found.Preview != nil {
		if data.Paused, err = v.paused(found.Preview.Consumers...); err != nil {
			return page{}, err
		}
	}
	data.Back = data.aboutLink()
	return page{Title: data.Title(), Tab: "operations", Data: data}, nil
}

// poisoned is the filter as it was asked for: a plan is pinned to the instant of its preview, which the page shows.
func (o operation) poisoned() poisonedFilter {
	f := poisonedFilter{*o.Target.Poisoned}
	if o.Preview != nil && f.PoisonedBefore.Equal(o.Preview.At) {
		f.PoisonedBefore = time.Time{}
	}
	return f
}

// aboutLink is where what an operation is about is to be seen.
func (o operation) aboutLink() string {
	switch t := o.Target; {
	case t.Operation != 0:
		return linkTo("operation", "id", t.Operation).String()
	case len(t.IDs) == 1:
		return linkTo("message", "id", t.IDs[0]).String()
	case t.Poisoned != nil && len(t.Poisoned.IDs) > 0:
		return "" // no page is of such
	case t.Poisoned != nil:
		return link{"group", o.poisoned().Fields()}.String()
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

// MayDecide reports whether the principal may do that to an operation, which takes what the operation does, too.
func (v *request) MayDecide(action ops.Action, o ops.Operation) bool {
	return v.mayDo(action, consumerOf(o.Target)) == nil && v.mayDo(o.Action, consumerOf(o.Target)) == nil
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
