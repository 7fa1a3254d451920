package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrNewer is returned for JSON with a field that this version does not know. A newer version of the
// library has written it, and its processes are to act on it: to ignore the field would lose what it
// says.
var ErrNewer = errors.New("written by a newer version of the library")

// UnmarshalKnown is json.Unmarshal, except that a field that is not known is [ErrNewer].
func UnmarshalKnown(text []byte, value any) error {
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	err := strict.Decode(value)
	if err != nil && strings.Contains(err.Error(), "unknown field") {
		return fmt.Errorf("%w: %w", ErrNewer, err)
	}
	return err
}
