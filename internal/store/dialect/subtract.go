package dialect

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Where lists of ids are JSON, the rest of a claim is computed here from its list and the results,
// each of which is read once. In SQL every result would scan the whole list.

// IDList is a list of ids as it is stored.
type IDList []int64

// Scan implements sql.Scanner.
func (l *IDList) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		return nil
	case []byte:
		return json.Unmarshal(v, (*[]int64)(l))
	case string:
		return json.Unmarshal([]byte(v), (*[]int64)(l))
	}
	return fmt.Errorf("list of ids from a %T", src)
}

// Leased is a locked row of message_claims.
type Leased struct {
	ID         int64  `bun:"id"`
	Owner      string `bun:"owner"` // of a claim that has outlived its lease
	Solo       bool   `bun:"solo"`
	MessageIDs IDList `bun:"message_ids"`
	Lanes      IDList `bun:"lanes"` // of each id, or empty
}

// ResultKey identifies a result.
type ResultKey struct{ Claim, Message int64 }

// Key returns the key of the result.
func (r Result) Key() ResultKey { return ResultKey{r.Claim, r.Message} }

// ClaimsOf returns the distinct claims of results.
func ClaimsOf(results []Result) (claims []int64) {
	seen := make(map[int64]bool)
	for _, r := range results {
		if !seen[r.Claim] {
			seen[r.Claim] = true
			claims = append(claims, r.Claim)
		}
	}
	return claims
}

// Subtract returns the results that count, whose messages are still in their claims, the rests of
// claims, and the claims that have no rest.
func Subtract(live []Leased, results []Result) (held []Result, rests []Leased, ended []int64) {
	byKey := make(map[ResultKey]Result, len(results))
	for _, r := range results {
		byKey[r.Key()] = r
	}
	for _, c := range live {
		rest := Leased{ID: c.ID, Solo: c.Solo}
		for i, id := range c.MessageIDs {
			if r, ok := byKey[ResultKey{c.ID, id}]; ok {
				held = append(held, r)
				continue
			}
			rest.MessageIDs = append(rest.MessageIDs, id)
			if len(c.Lanes) > 0 {
				rest.Lanes = append(rest.Lanes, c.Lanes[i])
			}
		}
		if len(rest.MessageIDs) == 0 {
			ended = append(ended, c.ID)
		} else {
			rests = append(rests, rest)
		}
	}
	return held, rests, ended
}

// Without returns the ids that are not among the others.
func Without(ids, others []int64) []int64 {
	known := make(map[int64]bool, len(others))
	for _, id := range others {
		known[id] = true
	}
	return slices.DeleteFunc(ids, func(id int64) bool { return known[id] })
}
