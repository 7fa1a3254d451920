package paging

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

const (
	defaultSize = 50
	maxSize     = 1000
)

// Place is the row of a listing after which a page begins.
type Place struct {
	Consumer string `json:"c,omitempty"`
	Payload  string `json:"p,omitempty"` // its type
	Micros   int64  `json:"t"`           // since 1970
	ID       int64  `json:"i"`

	// Of a listing of messages with keys, by these.
	Keyed bool  `json:"k,omitempty"`
	Lane  int64 `json:"l,omitempty"`
	Rank  int64 `json:"r,omitempty"`
}

// At is the instant of the row.
func (p Place) At() time.Time { return time.UnixMicro(p.Micros).UTC() }

// Start returns the size of a page, and the place that it begins after, unless that is empty.
func Start(size int, after string) (int, Place, error) {
	if size < 0 || size > maxSize {
		return 0, Place{}, fmt.Errorf("page size %d: %w: 1 to %d are allowed", size, limits.ErrOption, maxSize)
	}
	var place Place
	if size = cmp.Or(size, defaultSize); after == "" {
		return size, place, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(after)
	if err == nil {
		err = json.Unmarshal(text, &place)
	}
	if year := place.At().Year(); err != nil || place.ID == 0 || year < 0 || year > 10_000 ||
		limits.CheckText(place.Consumer+place.Payload) != nil {
		return 0, Place{}, fmt.Errorf("page after %q: %w: only what List returned is allowed", after, limits.ErrOption)
	}
	return size, place, nil
}

// After encodes a place.
func After(place Place) string {
	text, err := json.Marshal(place)
	if err != nil {
		panic(err) // impossible: texts and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
