//go:build unix

package main

import (
	"strings"
	"testing"
)

const sample = `package sample

import "strings"

type queue struct{ open, closed bool }

const query = ` + "`SELECT id\n\tFROM jobs WHERE id = ?`" + `

func (q *queue) check(name string, n int) (bool, error) {
	name = strings.TrimSpace(name)
	q.note(name) // not twice
	if q.open && n > 1 {
		return n < 10, nil
	}
	for range n {
		q.note("again")
	}
	if err := q.send(name, []int{1, 2, 3}); err != nil {
		return false, err
	}
	return !q.closed, nil
}
`

// sampleSource returns a source of one file.
func sampleSource(t *testing.T) *source {
	t.Helper()
	f, err := parse("sample.go", sample)
	if err != nil {
		t.Fatal(err)
	}
	s := &source{decls: make(map[string][]*scope)}
	for _, d := range f.scopes() {
		s.decls[d.name] = append(s.decls[d.name], d)
	}
	return s
}

func TestSteps(t *testing.T) {
	for what, test := range map[string]struct {
		mistake mistake
		want    string
	}{
		"drop by call":      {in("check", drop("strings.TrimSpace")), "for range 0 { name = strings.TrimSpace(name) }"},
		"drop by code":      {in("check", drop("q.note(name)")), "for range 0 { q.note(name) } // not twice"},
		"drop a check":      {in("check", drop("send")), "for range 0 { if err := q.send("},
		"before":            {in("queue.check", before("send", "n++")), "n++; if err := q.send("},
		"after":             {in("sample.queue.check", after("q.note(name)", "n++")), "q.note(name); n++ // not twice"},
		"returns":           {in("check", returns("true, nil")), "(bool, error) { for range 1 { return true, nil };"},
		"never":             {in("check", never("n > 1")), "if ((q.open && n > 1) && false) {"},
		"never, by an init": {in("check", never("q.send")), "; ((err != nil) && false) {"},
		"always, returned":  {in("check", always("n < 10")), "return ((n < 10) || true), nil"},
		"without":           {in("check", without("q.open")), "if ((q.open) || true) && n > 1 {"},
		"replace":           {in("check", replace("q.note(name)", "_ = name")), "\t_ = name // not twice"},
		"replace, elided":   {in("check", replace("q.send(…)", "error(nil)")), "err := error(nil); err"},
		"argument":          {in("check", argument("send", 1, "nil")), "q.send(name, nil)"},
		"omit":              {in("check", omit("2")), "[]int{1,  3}"},
		"omit the last":     {in("check", omit("3")), "[]int{1, 2}"},
		"text":              {in("query", text("id FROM jobs", "nothing FROM jobs")), "SELECT \nnothing FROM jobs WHERE"},
		"an unused import":  {in("check", replace("strings.TrimSpace(name)", "name")), `import _ "strings"`},
	} {
		texts, err := test.mistake.apply(sampleSource(t))
		if err != nil || !strings.Contains(texts["sample.go"], test.want) {
			t.Errorf("%s: got error %v and %s, want %q", what, err, texts["sample.go"], test.want)
		}
	}
}

func TestAMutantWithoutOnePlaceIsAnError(t *testing.T) {
	code := readAll(t)
	for what, test := range map[string]struct {
		mistake mistake
		want    string
	}{
		"no declaration": {in("noSuchName", returns("")), "noSuchName: no declaration has this name"},
		"no such method": {in("postgres.Store.Claim", returns("")), "no declaration has this name"},
		"many methods":   {in("database.Claim", returns("")), "mariadb.database.Claim (internal/store/mariadb/claim.go:"},
		"many constants": {in("recordSQL", text("a", "b")), "ambiguous: mariadb.recordSQL (internal/store/mariadb/claim.go:"},
		"no place":       {in("postgres.recordSQL", text("no such text", "")), "0 places, want one"},
		"many places":    {in("postgres.recordSQL", text("FROM", "")), "places, want one: internal/store/postgres/claim.go:"},
		"one place twice": {in("recoverer.mayRecover", never("rc.outage.Stable"), always("rc.outage.Stable")),
			"two steps change the same place"},
		"no file":    {file("none.css", "a", "b"), "0 files have this name"},
		"many files": {file("0001_initial.sql", "a", "b"), "3 files have this name"},
		"no code":    {in("recoverer.mayRecover", replace("rc.outage.Stable()", "][")), "the mutant does not parse"},
	} {
		_, err := test.mistake.apply(code)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want %q", what, err, test.want)
		}
	}
}
