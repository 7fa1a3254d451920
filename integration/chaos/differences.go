package chaos

import "fmt"

// Entry is an event of a log: a stream, and a job that is in it once.
type Entry struct {
	Stream string
	Job    int
}

// Differences are what a log that was passed on has otherwise than it was, each of which is empty
// when the promise was kept.
type Differences struct {
	Lost     []Entry // not there
	Twice    []Entry // there again
	Unknown  []Entry // there, though it was not in the log, or not in this stream
	Inverted []Entry // there for the first time, behind one of its stream that came after it
}

// Compare compares two logs. Only the order within streams counts.
func Compare(log, passed []Entry) (d Differences) {
	places, last, next := make(map[Entry]int), make(map[string]int), make(map[string]int)
	for _, e := range log {
		next[e.Stream]++
		places[e] = next[e.Stream]
	}
	seen := make(map[Entry]bool)
	for _, e := range passed {
		place, known := places[e]
		switch {
		case !known:
			d.Unknown = append(d.Unknown, e)
			continue
		case seen[e]:
			d.Twice = append(d.Twice, e)
			continue
		case place < last[e.Stream]:
			d.Inverted = append(d.Inverted, e)
		}
		seen[e], last[e.Stream] = true, max(place, last[e.Stream])
	}
	for _, e := range log {
		if !seen[e] {
			d.Lost = append(d.Lost, e)
		}
	}
	return d
}

// Kept tells whether there are none.
func (d Differences) Kept() bool {
	return len(d.Lost)+len(d.Twice)+len(d.Unknown)+len(d.Inverted) == 0
}

// String sums them up.
func (d Differences) String() string {
	return fmt.Sprintf("lost %d, twice %d, unknown %d, inversions %d", len(d.Lost), len(d.Twice), len(d.Unknown), len(d.Inverted))
}
