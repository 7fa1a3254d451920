package ops

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/internal/projections"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// can reports whether this process can carry out an operation. An apply needs the projection in
// the target version; [Promote] needs only some projection runner. A newer version of the library
// may have started a kind or target that this version does not know.
func (r *Runner) can(row store.Operation) bool {
	a := Action(row.Kind)
	var unknown *unknownTargetError
	target, err := targetOf(row)
	if errors.As(err, &unknown) {
		return false // written by a newer version
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

// unknownTargetError is returned for a target with a field that this version does not know. To
// ignore the field would change more than was planned.
type unknownTargetError struct{ error }

// targetOf reads an operation's target, which a newer version may have extended, and checks that it
// fits the operation.
func targetOf(row store.Operation) (target pinnedTarget, err error) {
	strict := json.NewDecoder(bytes.NewReader(row.Target))
	strict.DisallowUnknownFields()
	if err = strict.Decode(&target); err != nil && strings.Contains(err.Error(), "unknown field") {
		err = &unknownTargetError{err}
	}
	if kind, known := kinds()[Action(row.Kind)]; err == nil && known {
		if err = kind.check(target.Target); err == nil && kind.step != nil && len(target.Pinned) == 0 {
			err = fmt.Errorf("%w lists no messages", errTarget)
		}
	}
	return target, err
}
