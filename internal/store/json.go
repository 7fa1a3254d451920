package store

import "encoding/json"

// Lists are passed to databases without array parameters as JSON.

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // impossible: only numbers and valid strings are passed in
	}
	return string(text)
}

// PayloadText is a payload in JSON that people and their programs read: as it is when it
// is JSON itself, else as a string.
type PayloadText []byte

// MarshalJSON implements json.Marshaler.
func (p PayloadText) MarshalJSON() ([]byte, error) {
	if json.Valid(p) {
		return p, nil
	}
	return json.Marshal(string(p))
}

// Headers reads headers as they are stored. Only the library writes them; should
// they be unreadable all the same, that is no reason to withhold a message.
func Headers(text []byte) map[string]string {
	var headers map[string]string
	if len(text) > 0 {
		_ = json.Unmarshal(text, &headers)
	}
	return headers
}

// pairs lists the kinds of messages that are wanted.
func pairs(wants []Want) string {
	list := make([][2]string, len(wants))
	for i, w := range wants {
		list[i] = [2]string{w.Consumer, w.Payload}
	}
	return asJSON(list)
}

func resultsJSON(results []Result) string {
	type row struct {
		Claim   int64   `json:"c"`
		Message int64   `json:"m"`
		Outcome Outcome `json:"o"`
		Delay   int64   `json:"d"`
		Errors  string  `json:"e"`
		Reason  string  `json:"r"`
	}
	rows := make([]row, len(results))
	for i, r := range results {
		rows[i] = row{r.Claim, r.Message, r.Outcome, r.Delay.Microseconds(), CleanText(r.Errors, 0), CleanText(r.Reason, maxErrorBytes)}
	}
	return asJSON(rows)
}
