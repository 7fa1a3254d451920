package console

import (
	"strconv"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
)

// findPage looks for messages by what has no index, a part at a time.
type findPage struct {
	What, Value, Name string
	Asked             bool
	Found             []admin.Message
	Examined          int64
	Next              string  // where to go on looking
	ByItself          bool    // whether the browser goes on without being asked: Next lists all that were found
	Before            []int64 // what the pages before have found
	More              int64   // how many they have found besides
	search            admin.Search
	place             admin.Cursor
}

const (
	findTime  = 700 * time.Millisecond // of one page
	mostFound = 50
)

func (p *findPage) read(q *params) {
	p.What, p.Value, p.Name = q.text("what"), q.text("value"), q.text("header")
	p.place = admin.Cursor{After: q.text("after"), Examined: q.id("examined")}
	p.Asked, p.Before, p.Examined = p.Value != "", q.ids("found"), p.place.Examined
	p.More = q.id("more")
	switch p.What {
	case "message":
		p.search.MessageID = q.uuid("value")
	case "trace":
		p.search.TraceID = p.Value
	case "header":
		p.search.Header, p.search.Value = p.Name, p.Value
	case "":
		p.What, p.Asked = "message", false
	default:
		q.fail("what must be message, trace or header.")
	}
}

func (p *findPage) load(r *request) error {
	if !p.Asked {
		return nil
	}
	until := time.Now().Add(findTime)
	for next := &p.place; next != nil; {
		found, after, err := r.session.Messages().Find(r.Context(), p.search, *next)
		if err != nil {
			return err
		}
		p.Found = append(p.Found, found...)
		next = after
		if next == nil {
			break
		}
		p.Examined = next.Examined
		if !time.Now().Before(until) || len(p.Found) >= mostFound {
			p.Next = p.goOn(*next)
			break
		}
	}
	return nil
}

func (*findPage) layout() layout { return layout{title: "Find messages", tab: "messages"} }

// goOn is the page that goes on looking, and lists what was found so far.
func (p *findPage) goOn(place admin.Cursor) string {
	to := linkTo("find", "what", p.What, "value", p.Value, "header", p.Name, "after", place.After, "examined", place.Examined)
	found := p.Before
	for _, m := range p.Found {
		found = append(found, m.ID)
	}
	listed := found[:min(len(found), mostFound)]
	for _, id := range listed {
		to.query.Add("found", strconv.FormatInt(id, 10))
	}
	p.ByItself = len(p.Found) == 0 || len(listed) == len(found)
	if more := p.More + int64(len(found)-len(listed)); more > 0 {
		to.query.Set("more", strconv.FormatInt(more, 10))
	}
	return to.String()
}
