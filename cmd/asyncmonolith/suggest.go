package main

import (
	"fmt"
	"slices"
)

// near reports whether a word may be a name that is mistyped.
func near(word, name string) bool { return distance(word, name) <= max(1, len(name)/4) }

// guess is the name that was meant, if one is nearly a word.
func guess(word string, names []string) string {
	name := nearest(word, names)
	if d := distance(word, name); d >= len(word) || d > max(2, len(name)/3) {
		return ""
	}
	return name
}

// meant asks whether a name was meant, if one is nearly a word, and says where to look.
func meant(word string, names []string, shown func(name string) string, see string) string {
	if name := guess(word, names); name != "" {
		return ": did you mean " + shown(name) + "? See " + see
	}
	return ": see " + see
}

// quotedName shows a name alone.
func quotedName(name string) string { return fmt.Sprintf("%q", name) }

// nearest is the name that differs least from a word.
func nearest(word string, names []string) string {
	best := ""
	for _, name := range slices.Sorted(slices.Values(names)) {
		nearer := distance(word, name) - distance(word, best)
		if best == "" || nearer < 0 || nearer == 0 && shared(word, name) > shared(word, best) {
			best = name
		}
	}
	return best
}

// shared is how many letters they begin with in common.
func shared(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// distance is how many letters must be changed, added or left out.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
