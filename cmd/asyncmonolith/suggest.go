package main

import (
	"fmt"
	"slices"
)

// near reports whether word can be name with a typing error.
func near(word, name string) bool { return distance(word, name) <= max(1, len(name)/4) }

// similar returns the name that is closest to word, or "" if none is close.
func similar(word string, names []string) string {
	name := nearest(word, names)
	if d := distance(word, name); d >= len(word) || d > max(2, len(name)/3) {
		return ""
	}
	return name
}

// suggestion suggests a name that is close to word, and where to look.
func suggestion(word string, names []string, shown func(name string) string, see string) string {
	if name := similar(word, names); name != "" {
		return ": did you mean " + shown(name) + "? See " + see
	}
	return ": see " + see
}

func quotedName(name string) string { return fmt.Sprintf("%q", name) }

// nearest returns the name with the smallest distance to word.
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

// shared is the length of the common prefix.
func shared(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// distance is the Levenshtein distance.
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
