package arch_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// noDrivers keeps every database driver out of the root go.mod, indirect requirements included: a
// driver, and so cgo or a SQL dialect's client, is the application's choice.
func noDrivers(t *tree) []string {
	drivers := []string{
		"github.com/glebarez/go-sqlite/...",
		"github.com/go-sql-driver/mysql/...",
		"github.com/jackc/pgx/...",
		"github.com/lib/pq/...",
		"github.com/mattn/go-sqlite3/...",
		"github.com/microsoft/go-mssqldb/...",
		"github.com/ncruces/go-sqlite3/...",
		"github.com/uptrace/bun/driver/...",
		"modernc.org/sqlite/...",
	}
	content, ok := t.goMods["."]
	if !ok {
		return []string{"go.mod: the root module has none"}
	}
	var violations []string
	number := 0
	for line := range strings.Lines(content) {
		number++
		code, _, _ := strings.Cut(line, "//")
		for _, word := range strings.Fields(code) {
			if matches(word, drivers) {
				violations = append(violations, fmt.Sprintf("go.mod:%d: the root module may not require the database driver %s", number, word))
			}
		}
	}
	return violations
}

// oneVersion wants a dependency to have one version in all modules. What builds in the workspace then builds
// outside of it, from the same cache.
func oneVersion(t *tree) []string {
	first := map[string]string{} // of a module, its version and the go.mod that has it
	var violations []string
	for _, dir := range slices.Sorted(maps.Keys(t.goMods)) {
		if dir == "tools" {
			continue // it is not in the workspace
		}
		for line := range strings.Lines(t.goMods[dir]) {
			words := strings.Fields(strings.TrimPrefix(line, "require "))
			if len(words) < 2 || !strings.HasPrefix(words[1], "v") || strings.HasPrefix(words[0], modulePath) {
				continue
			}
			module, version := words[0], words[1]
			if other, ok := first[module]; !ok {
				first[module] = version
			} else if other != version {
				violations = append(violations, fmt.Sprintf("%s: %s has version %s here, %s elsewhere",
					path.Join(dir, "go.mod"), module, version, other))
			}
		}
	}
	return violations
}

// portable wants the root module to build wherever its dependencies do.
func portable(t *tree) []string {
	var violations []string
	for _, s := range t.shipped() {
		for _, spec := range s.file.Imports {
			target, _ := strconv.Unquote(spec.Path.Value)
			if matches(target, []string{"C", "unsafe", "syscall", "os/signal", "plugin", "golang.org/x/sys/..."}) {
				violations = append(violations, t.at(spec, "the root module may not import %s, which differs by platform", target))
			}
		}
		for _, comments := range s.file.Comments {
			if text := comments.List[0].Text; strings.HasPrefix(text, "//go:build") {
				violations = append(violations, t.at(comments, "no file of the root module is for one platform"))
			}
		}
	}
	return violations
}
