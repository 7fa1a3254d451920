package engine

import (
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Results of messages that run in the order of their keys are written in that order. Otherwise an
// older message could run again behind newer ones that are gone. Results of one key are in one
// claim, in the order in which the messages ran.

// sameKey reports whether both are of one key whose messages run in order.
func sameKey(a, b store.Result) bool {
	return a.Lane != 0 && a.Lane == b.Lane && a.Claim == b.Claim && a.InOrder()
}

// splitBehind separates the results that come behind an unwritten one of their key.
func splitBehind(results, unwritten []store.Result) (ready, behind []store.Result) {
	if len(unwritten) == 0 {
		return results, nil
	}
	for _, r := range results {
		if slices.ContainsFunc(unwritten, func(u store.Result) bool { return sameKey(u, r) }) {
			behind = append(behind, r)
		} else {
			ready = append(ready, r)
		}
	}
	return ready, behind
}

// firstOfKeys separates the results that come behind another one of their key.
func firstOfKeys(results []store.Result) (first, rest []store.Result) {
	for _, r := range results {
		if slices.ContainsFunc(first, func(f store.Result) bool { return sameKey(f, r) }) {
			rest = append(rest, r)
		} else {
			first = append(first, r)
		}
	}
	return first, rest
}

// sharesKey reports whether two results are of one key.
func sharesKey(results []store.Result) bool {
	_, rest := firstOfKeys(results)
	return len(rest) > 0
}
