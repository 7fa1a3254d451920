package testdb

import (
	"strings"
	"sync"
)

// Prepared knows the statements that were prepared by name, for whoever looks at what is
// sent. The zero value knows none. It is safe for concurrent use.
type Prepared struct{ bodies sync.Map }

// Text is what a statement says: of one that was prepared before, that with its values
// behind it. PREPARE itself says nothing yet.
func (p *Prepared) Text(sql string) string {
	if rest, ok := strings.CutPrefix(sql, "PREPARE "); ok {
		name, body, _ := strings.Cut(rest, " AS ")
		p.bodies.Store(name, strings.TrimSpace(body))
		return "PREPARE " + name
	}
	if rest, ok := strings.CutPrefix(sql, "EXECUTE "); ok {
		name, _, _ := strings.Cut(rest, "(")
		if body, ok := p.bodies.Load(name); ok {
			return body.(string) + "\n-- " + sql
		}
	}
	return sql
}
