package dialect

import "strings"

// Behind is true of what comes behind a place in the order of columns, which an index has, the last
// one an id. Its values are those of [Names.BehindArgs].
func (n Names) Behind(columns ...string) string {
	if !n.OneByOne {
		// With > a planner would take all of the place's consumer for what is not behind it.
		return "(" + strings.Join(columns, ", ") + ") >= (" + Rows("?", len(columns)) + " + 1)"
	}
	steps := make([]string, len(columns))
	for i, column := range columns {
		steps[i] = strings.Join(append(Each(columns[:i], func(c string) string { return c + " = ?" }), column+" > ?"), " AND ")
	}
	return "(" + strings.Join(steps, " OR ") + ")"
}

// BehindArgs are the values of [Names.Behind], given those of the place.
func (n Names) BehindArgs(place ...any) []any {
	if !n.OneByOne {
		return place
	}
	var args []any
	for i := range place {
		args = append(args, place[:i+1]...)
	}
	return args
}
