package paging

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

const (
	defaultSize = 50
	maxSize     = 1000
)

// Start returns the size of a page, and decodes the place that it begins after; an
// empty one leaves place as it is.
func Start(size int, after string, place any) (int, error) {
	if size < 0 || size > maxSize {
		return 0, fmt.Errorf("page size %d: %w: 1 to %d are allowed", size, limits.ErrOption, maxSize)
	}
	if size == 0 {
		size = defaultSize
	}
	if after == "" {
		return size, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(after)
	if err == nil {
		err = json.Unmarshal(text, place)
	}
	if err != nil {
		return 0, Foreign(after)
	}
	return size, nil
}

// Foreign is the error of a place that no listing returned.
func Foreign(after string) error {
	return fmt.Errorf("page after %q: %w: only what List returned is allowed", after, limits.ErrOption)
}

// After encodes a place: a struct of texts and numbers.
func After(place any) string {
	text, err := json.Marshal(place)
	if err != nil {
		panic(err) // impossible: texts and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
