package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

// usage marks an error as a mistake in how the command was called.
func usage(err error) error {
	if err == nil || errors.Is(err, errUsage) {
		return err
	}
	return fmt.Errorf("%w: %w", errUsage, err)
}

// one takes the name, or the id, of one thing, which a command lists.
func one(thing, listed string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return missing(thing, listed)
		case len(args) > 1:
			return fmt.Errorf("name one %s, and not %d", thing, len(args))
		default:
			return nil
		}
	}
}

// atLeastOne takes those of one thing or of several.
func atLeastOne(thing, listed string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return missing(thing, listed)
		}
		return nil
	}
}

func missing(thing, listed string) error {
	return fmt.Errorf("name the %s, which asyncmonolith %s shows", thing, listed)
}

// nothing takes no arguments.
func nothing(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is one word too many", args[0])
	}
	return nil
}

// takes makes arguments that a command does not take a mistake of usage.
func takes(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usage(fmt.Errorf("%w: see %s --help", err, c.CommandPath()))
		}
		return nil
	}
}

// asGroup makes a command of those below it: alone it shows them, and it names the nearest one to a word
// that is none.
func asGroup(c *cobra.Command) *cobra.Command {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names []string
		for _, known := range c.Commands() {
			if !known.Hidden {
				names = append(names, known.Name())
			}
		}
		return usage(fmt.Errorf("there is no command %q%s", c.CommandPath()+" "+args[0], meant(args[0], names, func(name string) string { return quotedName(c.CommandPath() + " " + name) }, c.CommandPath()+" --help")))
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return c
}

// nearestFlag says which flag may have been meant.
func nearestFlag(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var wrong *pflag.InvalidValueError
	switch {
	case errors.As(err, &wrong):
		return usage(fmt.Errorf("--%s %q: %s", wrong.GetFlag().Name, wrong.GetValue(), allowedBy(wrong)))
	case !errors.As(err, &unknown):
		return usage(fmt.Errorf("%w: see %s --help", err, c.CommandPath()))
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return usage(fmt.Errorf("there is no flag %q%s", unknown.GetSpecifiedName(), meant(unknown.GetSpecifiedName(), names, func(name string) string { return "--" + name }, c.CommandPath()+" --help")))
}

// allowedBy is what a flag takes.
func allowedBy(wrong *pflag.InvalidValueError) string {
	switch wrong.GetFlag().Value.Type() {
	case "int", "int64":
		return "a number is allowed"
	case "duration":
		return "a duration is allowed, such as 90s or 1h30m"
	case "bool":
		return "true or false is allowed"
	default:
		return wrong.Unwrap().Error()
	}
}

// choice is a flag that takes one of some words.
type choice struct {
	word *string
	of   []string
}

// String implements pflag.Value.
func (c choice) String() string {
	if c.word == nil {
		return ""
	}
	return *c.word
}

// Type implements pflag.Value.
func (choice) Type() string { return "WORD" }

// Set implements pflag.Value.
func (c choice) Set(word string) error {
	if !slices.Contains(c.of, word) {
		allowed := strings.Join(c.of, ", ") + " are allowed"
		if name := guess(word, c.of); name != "" {
			return fmt.Errorf("did you mean %q? %s", name, allowed)
		}
		return errors.New(allowed)
	}
	*c.word = word
	return nil
}

// near reports whether a word may be a name that is mistyped.
func near(word, name string) bool { return distance(word, name) <= max(1, len(name)/4) }

// guess is the name that was meant, if one is nearly a word.
func guess(word string, names []string) string {
	name := nearest(word, names)
	if d := distance(word, name); d >= len(word) || d > max(2, len(name)/3) {
		return ""
	}
	return name
}

// meant asks whether a name was meant, if one is nearly a word, and says where to look.
func meant(word string, names []string, shown func(name string) string, see string) string {
	if name := guess(word, names); name != "" {
		return ": did you mean " + shown(name) + "? See " + see
	}
	return ": see " + see
}

// quotedName shows a name alone.
func quotedName(name string) string { return fmt.Sprintf("%q", name) }

// nearest is the name that differs least from a word.
func nearest(word string, names []string) string {
	best := ""
	for _, name := range slices.Sorted(slices.Values(names)) {
		if best == "" || distance(word, name) < distance(word, best) || distance(word, name) == distance(word, best) && shared(word, name) > shared(word, best) {
			best = name
		}
	}
	return best
}

// shared is how many letters they begin with in common.
func shared(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// distance is how many letters must be changed, added or left out.
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

// ids reads ids of rows.
func ids(args []string) ([]int64, error) {
	found := make([]int64, 0, len(args))
	for _, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id < 1 {
			return nil, usage(fmt.Errorf("%q is no id: a number is allowed, as listings show it", show.Text(arg)))
		}
		if !slices.Contains(found, id) {
			found = append(found, id)
		}
	}
	return found, nil
}

// instant is a flag with a time in UTC.
type instant struct{ time.Time }

// String implements pflag.Value.
func (i *instant) String() string { return show.Value(i.Time) }

// Type implements pflag.Value.
func (*instant) Type() string { return "TIME" }

// Set implements pflag.Value.
func (i *instant) Set(text string) (err error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if i.Time, err = time.Parse(layout, strings.TrimSpace(text)); err == nil {
			return nil
		}
	}
	return errors.New(`a time is allowed such as "2026-01-02 15:04:05", which is in UTC, or 2026-01-02T15:04:05+01:00`)
}
