package ops

import (
	"errors"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/internal/projections"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// can reports whether this process can carry out an operation. An apply needs the projection in
// the target version; [Promote] needs only some projection runner. A newer version of the library
// may have started a kind or target that this version does not know.
func (r *Runner) can(row store.Operation) bool {
	a := Action(row.Kind)
	target, err := targetOf(row)
	if errors.Is(err, store.ErrNewer) {
		return false
	}
	if kind, known := kinds()[a]; !known || kind.apply == nil {
		return known
	}
	if r.projections == nil {
		return false
	}
	if a == Promote || err != nil { // the operation itself reports the error
		return true
	}
	version, ok := projections.Newest(r.projections, target.Projection)
	return ok && (target.Version == 0 || version == target.Version)
}

// targetOf reads an operation's target, which a newer version may have extended, and checks that it
// fits the operation. A field that is not known is [store.ErrNewer]: to ignore it would change more than
// was planned.
func targetOf(row store.Operation) (target pinnedTarget, err error) {
	err = store.UnmarshalKnown(row.Target, &target)
	if kind, known := kinds()[Action(row.Kind)]; err == nil && known {
		if err = kind.check(target.Target); err == nil && kind.step != nil && len(target.Pinned) == 0 {
			err = fmt.Errorf("%w lists no messages", errTarget)
		}
	}
	return target, err
}
