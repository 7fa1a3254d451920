package dialect

import "strings"

// Behind is true for rows behind a place in the order of columns, for which there is an index; the
// last column is an id. Its values are those of [Names.BehindArgs].
func (n Names) Behind(columns ...string) string {
	if !n.OneByOne {
		// With > a planner would read all of the place's consumer for rows not behind it.
		return "(" + strings.Join(columns, ", ") + ") >= (" + Rows("?", len(columns)) + " + 1)"
	}
	steps := make([]string, len(columns))
	for i, column := range columns {
		steps[i] = strings.Join(append(Each(columns[:i], func(c string) string { return c + " = ?" }), column+" > ?"), " AND ")
	}
	return "(" + strings.Join(steps, " OR ") + ")"
}

// BehindArgs returns the values of [Names.Behind] from those of the place.
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
