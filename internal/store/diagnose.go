package store

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// What Diagnose finds, and of what.
type (
	DeadTable = dialect.DeadTable
	Diagnosis = dialect.Diagnosis
	Holder    = dialect.Holder
	Vital     = dialect.Vital
	Weakness  = dialect.Weakness
)

// The parts of the live database, and the kinds of holders.
const (
	Weaknesses  = dialect.Weaknesses
	Connections = dialect.Connections
	DeadRows    = dialect.DeadRows
	Holders     = dialect.Holders
	OfPrepared  = dialect.OfPrepared
	OfSlot      = dialect.OfSlot
	Indexes     = dialect.Indexes
)

// Diagnose looks at a part of the live database and changes nothing.
func (s *SchemaStore) Diagnose(ctx context.Context, db bun.IDB, part Vital) (Diagnosis, error) {
	return s.dialect.Diagnose(ctx, db, part)
}

// Mistakes returns the reasons why the library cannot work with the live database: its server or
// its settings. It does not look at the tables. err means that it could not find out.
func (s *SchemaStore) Mistakes(ctx context.Context, db bun.IDB) (mistakes []error, err error) {
	server, err := s.dialect.Server(ctx, db)
	if err != nil {
		return nil, err
	}
	if mistake := refused(server, true); mistake != nil {
		return []error{mistake}, nil
	}
	_, err = s.dialect.Check(ctx, db)
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		mistakes = joined.Unwrap()
	} else if err != nil {
		mistakes = []error{err}
	}
	for _, mistake := range mistakes {
		if dberr.Answered(mistake) || dberr.ClassOf(mistake) != dberr.Other {
			return nil, mistake
		}
	}
	return mistakes, nil
}

// Index is an index as the migrations create it.
type Index struct {
	Name string
	// Statement creates it again.
	Statement string
	// Invalid is true for an index that exists and is not used, since its creation was interrupted.
	Invalid bool
}

// LostIndexes returns the indexes of applied migrations that are missing or invalid, and how many
// there should be.
func (s *SchemaStore) LostIndexes(ctx context.Context, db bun.IDB) (lost []Index, of int, err error) {
	version, err := s.version(ctx, db)
	if err != nil {
		return nil, 0, err
	}
	all, err := s.indexes(version)
	if err != nil {
		return nil, 0, err
	}
	d, err := s.dialect.Diagnose(ctx, db, Indexes)
	if err != nil {
		return nil, 0, err
	}
	valid := make(map[string]bool, len(d.Indexes))
	for _, found := range d.Indexes {
		valid[found.Name] = found.Valid
	}
	for _, index := range all {
		if !valid[index.Name] {
			_, index.Invalid = valid[index.Name]
			lost = append(lost, index)
		}
	}
	return lost, len(all), nil
}

// What migrations contain about indexes: a statement that creates or drops one, a table, and what
// is created and dropped with that. All are immutable.
var (
	ofIndex   = regexp.MustCompile(`(?is)^\s*(CREATE|DROP)\s+(?:UNIQUE\s+)?INDEX\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?(\S+?);?(?:\s|$)`)
	ofTable   = regexp.MustCompile(`(?is)^\s*(?:CREATE|ALTER)\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?(\S+)`)
	inTable   = regexp.MustCompile(`(?is)(?:^|[\s,])(DROP\s+INDEX|ADD\s+INDEX|UNIQUE\s+KEY|(?:PRIMARY\s+|FOREIGN\s+)?KEY)\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?([^\s,(]+)(?:\s*(\([^)]*\)))?`)
	ofComment = regexp.MustCompile(`--[^\n]*|(?s:/\*.*?\*/)`)
)

// indexes reads from the migrations which indexes a version of the tables has, by name. It leaves
// out those of keys without a name.
func (s *SchemaStore) indexes(version int) ([]Index, error) {
	all, err := s.migrations()
	if err != nil {
		return nil, err
	}
	made := make(map[string]string)
	for _, m := range all {
		if m.version > version {
			break
		}
		for _, statement := range statements(ofComment.ReplaceAllString(m.sql, " ")) {
			noteIndexes(made, statement)
		}
	}
	var indexes []Index
	for name, statement := range made {
		indexes = append(indexes, Index{Name: name, Statement: statement})
	}
	slices.SortFunc(indexes, func(a, b Index) int { return strings.Compare(a.Name, b.Name) })
	return indexes, nil
}

func noteIndexes(made map[string]string, statement string) {
	if found := ofIndex.FindStringSubmatch(statement); found != nil {
		noteIndex(made, strings.EqualFold(found[1], "DROP"), found[2], strings.TrimSpace(statement))
		return
	}
	table := ofTable.FindStringSubmatch(statement)
	if table == nil {
		return
	}
	for _, found := range inTable.FindAllStringSubmatch(statement, -1) {
		columns, unique := found[3], ""
		switch kind := strings.ToUpper(strings.Join(strings.Fields(found[1]), " ")); {
		case kind == "PRIMARY KEY", kind == "FOREIGN KEY", columns == "" && kind != "DROP INDEX":
			continue
		case kind == "UNIQUE KEY":
			unique = "UNIQUE "
		}
		noteIndex(made, columns == "", found[2], "ALTER TABLE "+table[1]+" ADD "+unique+"INDEX "+found[2]+" "+columns)
	}
}

// noteIndex keeps the statement that creates an index under its bare name, or forgets it.
func noteIndex(made map[string]string, dropped bool, name, statement string) {
	name = strings.NewReplacer(`"`, "", "`", "").Replace(name[strings.LastIndexByte(name, '.')+1:])
	if dropped {
		delete(made, name)
	} else {
		made[name] = statement
	}
}
