package differential

import (
	"errors"
	"fmt"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// poisoned draws a poisoned message.
func (f *Fuzz) poisoned() (i int, ok bool) {
	if len(f.model.Poisoned) == 0 {
		return 0, false
	}
	return f.random.IntN(len(f.model.Poisoned)), true
}

func requeue(f *Fuzz) (string, any, func(h handle) (any, error)) {
	i, ok := f.poisoned()
	if !ok {
		return "", nil, nil
	}
	want := poison.Result{Requeued: 1}
	if !f.model.requeue(i, f.model.Poisoned[i].N, f.now) {
		want = poison.Result{Conflicts: 1}
		f.Tally["requeue conflict"]++
	}
	return fmt.Sprintf("requeue number %d", i), want, func(h handle) (any, error) {
		id, err := h.id(h.ctx, h.db, "poisoned_messages", i)
		if err != nil {
			return nil, err
		}
		return h.poison.Requeue(h.ctx, h.db, id)
	}
}

func edit(f *Fuzz) (string, any, func(h handle) (any, error)) {
	i, ok := f.poisoned()
	if !ok {
		return "", nil, nil
	}
	f.made++
	n := f.made
	var payload bus.Payload = item{n}
	if f.model.Poisoned[i].Consumer == ordered {
		payload = step{n}
	}
	requeued := f.model.requeue(i, n, f.now)
	return fmt.Sprintf("edit number %d to %d", i, n), requeued, func(h handle) (any, error) {
		id, err := h.id(h.ctx, h.db, "poisoned_messages", i)
		if err != nil {
			return nil, err
		}
		if err = h.poison.EditAndRequeue(h.ctx, h.db, id, payload); errors.Is(err, poison.ErrConflict) {
			return false, nil
		}
		return true, err
	}
}

func discard(f *Fuzz) (string, any, func(h handle) (any, error)) {
	i, ok := f.poisoned()
	if !ok {
		return "", nil, nil
	}
	f.model.Poisoned = slices.Delete(f.model.Poisoned, i, i+1)
	return fmt.Sprintf("discard number %d", i), 1, func(h handle) (any, error) {
		id, err := h.id(h.ctx, h.db, "poisoned_messages", i)
		if err != nil {
			return nil, err
		}
		return h.poison.Discard(h.ctx, h.db, id)
	}
}
