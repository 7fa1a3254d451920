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

// pairs lists the kinds of messages that are wanted.
func pairs(wants []Want) string {
	consumers, payloads := kinds(wants)
	list := make([][2]string, len(consumers))
	for i := range list {
		list[i] = [2]string{consumers[i], payloads[i]}
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
