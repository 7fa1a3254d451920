package console

import (
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
)

// messagesPage is pending messages that match a filter.
type messagesPage struct {
	Filter    pendingFilter
	Found     []admin.Message
	Paging    paging
	Consumers []string // to choose from
}

// pendingFilter is a filter of pending messages as an address has it.
type pendingFilter struct {
	admin.Filter
	Older string // as it was typed
}

// States are those that can be filtered by.
func (pendingFilter) States() []admin.State {
	return []admin.State{admin.Ready, admin.Delayed, admin.Leased}
}

// Fields are the filter as fields of a form.
func (f pendingFilter) Fields() url.Values {
	id := ""
	if f.MessageID != uuid.Nil {
		id = f.MessageID.String()
	}
	return linkTo("", "consumer", f.Consumer, "type", f.PayloadType, "insert", f.InsertID, "key", f.OrderingKey, "message", id, "state", f.State, "crashed", yes(f.Crashed), "retrying", yes(f.Retrying), "older", f.Older).query
}

// pendingOf is a filter as an address has it.
func pendingOf(filter admin.Filter) pendingFilter {
	f := pendingFilter{Filter: filter}
	if filter.OlderThan > 0 {
		f.Older = filter.OlderThan.String()
	}
	return f
}

// Narrow reports whether the filter leaves anything out.
func (f pendingFilter) Narrow() bool { return len(f.Fields()) > 0 }

func yes(set bool) string {
	if set {
		return "yes"
	}
	return ""
}

func (a *asked) pending() pendingFilter {
	f := pendingFilter{Filter: admin.Filter{
		Consumer: a.text("consumer"), PayloadType: a.text("type"), InsertID: a.text("insert"), OrderingKey: a.text("key"), MessageID: a.uuid("message"), State: admin.State(a.text("state")),
		Crashed: a.flag("crashed"), Retrying: a.flag("retrying"), OlderThan: a.age("older"),
	}, Older: a.text("older")}
	if f.State != "" && !slices.Contains(f.States(), f.State) {
		a.fail("state must be ready, delayed or leased.")
	}
	return f
}

func (v *request) messages() (page, error) {
	a := v.asks()
	data := messagesPage{Filter: a.pending()}
	at := a.page()
	if err := a.err(); err != nil {
		return page{}, err
	}
	found, next, err := v.session.Messages().List(v.ctx(), data.Filter.Filter, at)
	if err != nil {
		return page{}, err
	}
	data.Found, data.Paging = found, v.paging(next)
	data.Consumers, err = v.consumers()
	return page{Title: "Messages", Tab: "messages", Data: data}, err
}

// consumers are the names of those that are known.
func (v *request) consumers() (names []string, err error) {
	o, err := v.glance()
	for _, q := range o.Queues {
		names = append(names, q.Consumer)
	}
	return names, err
}

// findPage looks for messages by what has no index.
type findPage struct {
	What, Value, Name string
	Asked             bool
	Found             []admin.Message
	Examined          int64
	Next              string // where to go on looking
	Before            []int64
}

const (
	findTime  = 700 * time.Millisecond // of one page
	mostFound = 50
)

func (v *request) find() (page, error) {
	a := v.asks()
	data := findPage{What: a.text("what"), Value: a.text("value"), Name: a.text("header")}
	search, place := admin.Search{}, admin.Cursor{After: a.text("after"), Examined: a.id("examined")}
	data.Asked, data.Before, data.Examined = data.Value != "", a.ids("found"), place.Examined
	switch data.What {
	case "message":
		search.MessageID = a.uuid("value")
	case "trace":
		search.TraceID = data.Value
	case "header":
		search.Header, search.Value = data.Name, data.Value
	case "":
		data.What, data.Asked = "message", false
	default:
		a.fail("what must be message, trace or header.")
	}
	if err := a.err(); err != nil || !data.Asked {
		return page{Title: "Find messages", Tab: "messages", Data: data}, err
	}
	until := time.Now().Add(findTime)
	for next := &place; next != nil; {
		found, after, err := v.session.Messages().Find(v.ctx(), search, *next)
		if err != nil {
			return page{}, err
		}
		data.Found = append(data.Found, found...)
		if next = after; next == nil {
			break
		}
		data.Examined, data.Next = next.Examined, ""
		if !time.Now().Before(until) || len(data.Found) >= mostFound {
			data.Next = v.goOn(*next, append(data.Before, idsOf(data.Found)...))
			break
		}
	}
	return page{Title: "Find messages", Tab: "messages", Data: data}, nil
}

// goOn is the page that goes on looking, and still knows what was found.
func (v *request) goOn(place admin.Cursor, found []int64) string {
	to := linkTo("find", "what", v.query.Get("what"), "value", v.query.Get("value"), "header", v.query.Get("header"), "after", place.After, "examined", place.Examined)
	for _, id := range found[:min(len(found), mostFound)] {
		to.query.Add("found", linkTo("", "id", id).query.Get("id"))
	}
	return to.String()
}

func idsOf(messages []admin.Message) (ids []int64) {
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	return ids
}
