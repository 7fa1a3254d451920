//go:build unix

package main

import "strings"

// mutant is one mistake, and who has to notice it.
type mutant struct {
	name string
	mistake
	suite
	// says matches what a test prints about the mistake. A mutant whose SQL is refused,
	// or that only takes the tests' time, does not get to that.
	says string
}

// suite is what runs against a mutant.
type suite struct {
	pkg   string // of the tests
	tests string // what go test -run takes
	bar   string // of integration/chaos, in its short form
}

func (s suite) String() string { return strings.TrimSpace(s.pkg + " " + s.tests + " " + s.bar) }

// tests are those of a package: TestStore/sqlite/settle. Each part is a whole name,
// unless it ends in *, and may be one of several: TestA|TestB.
func tests(pkg, names string) suite {
	parts := strings.Split(names, "/")
	for i, part := range parts {
		begin, isBegin := strings.CutSuffix(part, "*")
		if strings.Contains(begin, "|") {
			begin = "(" + begin + ")"
		}
		parts[i] = "^" + begin
		if !isBegin {
			parts[i] += "$"
		}
	}
	return suite{pkg: "./" + pkg, tests: strings.Join(parts, "/")}
}

// bar is a bar of integration/chaos: whole processes, some of which are killed.
func bar(name string) suite {
	return suite{pkg: "./integration/chaos", tests: "^TestBars$", bar: name}
}

func inStore(names string) suite    { return tests("integration/store", names) }
func inOutbox(names string) suite   { return tests("integration/outbox", names) }
func inRelay(names string) suite    { return tests("integration/relay", names) }
func inOps(names string) suite      { return tests("integration/ops", names) }
func inLog(names string) suite      { return tests("integration/eventlog", names) }
func inSchedule(names string) suite { return tests("integration/schedule", names) }
func inConsole(names string) suite  { return tests("integration/console", names) }
