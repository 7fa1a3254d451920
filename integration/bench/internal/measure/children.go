package measure

import (
	"errors"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/child"
)

// children are processes with the same request. They end with the run's context
// at the latest.
type children []*child.Process

func (r *run) spawn(n int, request child.Request) (children, error) {
	var all children
	for range n {
		p, err := child.Spawn(r.ctx, request, r.fail)
		if err != nil {
			_, finished := all.finish()
			return nil, errors.Join(err, finished)
		}
		all = append(all, p)
	}
	return all, nil
}

func (all children) each(do func(*child.Process) error) error {
	for _, p := range all {
		if err := do(p); err != nil {
			return err
		}
	}
	return nil
}

// finish ends them and adds up what they found.
func (all children) finish() (sum child.Response, err error) {
	for _, p := range all {
		found, failed := p.Finish()
		err = errors.Join(err, failed)
		sum.Handled += found.Handled
		sum.Sum += found.Sum
		sum.Starts = append(sum.Starts, found.Starts...)
		sum.CPU += found.CPU
		sum.Statements += found.Statements
	}
	return sum, err
}
