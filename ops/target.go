package ops

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// unknownTargetError: the target of an operation has a field that this version does not know. To leave it out would
// change more than was planned.
type unknownTargetError struct{ error }

// targetOf reads the target of an operation, in which a newer version may have written more.
func targetOf(row store.Operation) (target Target, err error) {
	strict := json.NewDecoder(bytes.NewReader(row.Target))
	strict.DisallowUnknownFields()
	if err = strict.Decode(&target); err != nil && strings.Contains(err.Error(), "unknown field") {
		err = &unknownTargetError{err}
	}
	return target, err
}
