package errorlog

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxAttempts = 10
	// MaxBytes is how long one error may be.
	MaxBytes = 8 << 10
)

// Attempt is one entry of a message's list of errors.
type Attempt struct {
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Error   string    `json:"error"`
	// Uncounted is true of a run that did not count as an attempt.
	Uncounted bool `json:"uncounted,omitempty"`
}

// Attempts reads a list of errors as it is stored; one that cannot be read is
// empty, since that is no reason to withhold a message.
func Attempts(list string) []Attempt {
	var attempts []Attempt
	if list == "" || json.Unmarshal([]byte(list), &attempts) != nil {
		return nil
	}
	return attempts
}

// Append adds an attempt to the stored list of errors and keeps the last
// ten, each with at most 8 KiB as it is stored. One that did not count takes the place
// of the last that did not, or such errors would push out those that matter. A list that
// cannot be read is started anew rather than kept in the way.
func Append(list string, a Attempt) string {
	attempts := Attempts(list)
	if last := len(attempts) - 1; last >= 0 && a.Uncounted && attempts[last].Uncounted && attempts[last].Attempt == a.Attempt {
		attempts = attempts[:last]
	}
	attempts = append(attempts, a)
	attempts = attempts[max(0, len(attempts)-maxAttempts):]
	for i := range attempts { // the stored ones as well, whatever they were cut to
		attempts[i].Error = cutJSON(Clean(attempts[i].Error, MaxBytes), MaxBytes)
	}
	return encode(attempts)
}

// encode is a value as JSON, or empty where a time is outside of the years 0 to 9999.
func encode(v any) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // which makes six bytes of each <, and nobody reads it as HTML
	if err := encoder.Encode(v); err != nil {
		return ""
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// Quoted is a text as it stands in a stored list of errors.
func Quoted(text string) string {
	return strings.TrimSuffix(strings.TrimPrefix(encode(text), `"`), `"`)
}

// cutJSON cuts text so that it has at most limit bytes once it is quoted as JSON, the
// quotes aside.
func cutJSON(text string, limit int) string {
	size := 0
	for i, r := range text {
		switch {
		case r == '"', r == '\\', r == '\n', r == '\r', r == '\t':
			size += 2
		case r < ' ', r == '\u2028', r == '\u2029':
			size += 6
		default:
			size += utf8.RuneLen(r)
		}
		if size > limit {
			return text[:i]
		}
	}
	return text
}

// Clean makes text storable: NUL bytes and invalid UTF-8 are replaced, and
// it is cut to limit bytes on a character boundary. A limit of zero cuts nothing.
func Clean(text string, limit int) string {
	if limit > 0 && len(text) > limit+utf8.UTFMax {
		text = text[:limit+utf8.UTFMax] // what is cleaned is only copied
	}
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
	if limit <= 0 {
		return text
	}
	return Cut(text, limit)
}

// Cut shortens text to at most limit bytes, on a character boundary where there is one.
func Cut[T string | []byte](text T, limit int) T {
	if len(text) <= limit {
		return text
	}
	end := limit
	for end > max(0, limit-utf8.UTFMax) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Text returns the text of an error, the first 8 KiB of it, whatever its Error
// method does: a nil pointer in an error interface, for one, makes many of them
// panic.
func Text(err error) (text string) {
	defer func() {
		if value := recover(); value != nil {
			text = fmt.Sprintf("bus: the Error method of %T panicked", err)
		}
	}()
	if text = err.Error(); len(text) <= MaxBytes {
		return text
	}
	return strings.Clone(Cut(text, MaxBytes)) // the rest of it must not be kept
}
