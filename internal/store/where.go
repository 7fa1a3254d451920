package store

import "strings"

// terms are parts of a statement, conditions or assignments, with their values.
type terms struct {
	texts []string
	args  []any
}

// add adds a term if it is wanted.
func (t *terms) add(wanted bool, text string, args ...any) {
	if wanted {
		t.texts, t.args = append(t.texts, text), append(t.args, args...)
	}
}

// where joins conditions; without any it selects everything.
func (t *terms) where() string {
	if len(t.texts) == 0 {
		return "TRUE"
	}
	return strings.Join(t.texts, " AND ")
}
