package console

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// doctorPage is what is wrong, and what each page costs.
type doctorPage struct {
	Troubles []finding
	Fine     []finding // checks that passed
	Bad      int       // troubles
	Costs    []cost
}

func (*doctorPage) read(*params) {}

func (p *doctorPage) load(r *request) error {
	found, err := r.session.Doctor(r.Context())
	if err != nil {
		return err
	}
	p.Costs = r.costs.all()
	for _, f := range found {
		if f.Severity == ops.OK {
			p.Fine = append(p.Fine, finding{f})
		} else {
			p.Troubles = append(p.Troubles, finding{f})
		}
	}
	p.Bad = len(p.Troubles)
	return nil
}

func (*doctorPage) layout() layout { return layout{title: "Doctor", tab: "doctor"} }

// cost is the time that a page took since this process began.
type cost struct {
	Page    string
	Times   int64
	Last    time.Duration
	Slowest time.Duration
}

// costs are those of all pages. Its zero value is ready.
type costs struct {
	mu sync.Mutex
	of map[string]cost
}

// note adds the time of one page.
func (c *costs) note(page string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]cost{}
	}
	known := c.of[page]
	c.of[page] = cost{page, known.Times + 1, took, max(known.Slowest, took)}
}

// all are the costs, the slowest page first.
func (c *costs) all() (all []cost) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.of), func(a, b cost) int {
		return cmp.Or(cmp.Compare(b.Slowest, a.Slowest), cmp.Compare(a.Page, b.Page))
	})
}
