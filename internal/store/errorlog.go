package store

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxErrors     = 10
	maxErrorBytes = 8 << 10
)

// Attempt is one entry of a message's list of errors.
type Attempt struct {
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Error   string    `json:"error"`
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

// AppendError adds an attempt to the stored list of errors and keeps the last
// ten. A list that cannot be read is started anew rather than kept in the way.
func AppendError(list string, a Attempt) string {
	attempts := Attempts(list)
	a.Error = CleanText(a.Error, maxErrorBytes)
	attempts = append(attempts, a)
	attempts = attempts[max(0, len(attempts)-maxErrors):]
	text, err := json.Marshal(attempts)
	if err != nil { // a time outside of the years 0 to 9999
		return ""
	}
	return string(text)
}

// CleanText makes text storable: NUL bytes and invalid UTF-8 are replaced, and
// it is cut to limit bytes on a character boundary. A limit of zero cuts nothing.
func CleanText(text string, limit int) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
	if limit <= 0 || len(text) <= limit {
		return text
	}
	text = text[:limit]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text
}
