package dialect

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// AsJSON formats a list for a database that has no arrays.
func AsJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // impossible: only numbers and valid strings are passed in
	}
	return string(text)
}

// Rows repeats a row of values.
func Rows(row string, n int) string { return strings.TrimPrefix(strings.Repeat(", "+row, n), ", ") }

// Ordered formats a list of ids in the order in which rows are locked.
func Ordered(ids []int64) string {
	sorted := slices.AppendSeq([]int64{}, slices.Values(ids)) // never nil, which would be a null
	slices.Sort(sorted)
	return AsJSON(slices.Compact(sorted))
}

// Pairs formats the kinds of messages that are wanted.
func Pairs(wants []Want) string {
	return AsJSON(Each(wants, func(w Want) [2]string { return [2]string{w.Consumer, w.Payload} }))
}

// ResultsJSON formats results.
func ResultsJSON(results []Result) string {
	type row struct {
		Claim   int64   `json:"c"`
		Message int64   `json:"m"`
		Outcome Outcome `json:"o"`
		Delay   int64   `json:"d"`
		Errors  string  `json:"e"`
		Reason  string  `json:"r"`
		Parks   bool    `json:"p,omitempty"`
		Print   string  `json:"f,omitempty"`
	}
	return AsJSON(Each(results, func(r Result) row {
		return row{
			r.Claim, r.Message, r.Outcome, r.Delay.Microseconds(), errorlog.Clean(r.Errors, 0),
			errorlog.Clean(r.Reason, errorlog.MaxBytes), r.Parks, r.Fingerprint,
		}
	}))
}
