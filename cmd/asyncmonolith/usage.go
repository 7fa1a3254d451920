package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

// usage marks an error as wrong usage.
func usage(err error) error {
	if err == nil || errors.Is(err, errUsage) {
		return err
	}
	return fmt.Errorf("%w: %w", errUsage, err)
}

// exactlyOne takes one argument: the name or the id of a thing. The command listed shows them.
func exactlyOne(thing, listed string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return missing(thing, listed)
		case len(args) > 1:
			return fmt.Errorf("one %s is allowed, not %d", thing, len(args))
		default:
			return nil
		}
	}
}

// atLeastOne takes one argument or several.
func atLeastOne(thing, listed string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return missing(thing, listed)
		}
		return nil
	}
}

func missing(thing, listed string) error {
	return fmt.Errorf("the %s is missing: asyncmonolith %s lists them", thing, listed)
}

// noArgs takes no arguments.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q: no arguments are allowed", args[0])
	}
	return nil
}

// checkArgs turns errors of check into usage errors that name the help.
func checkArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usage(fmt.Errorf("%w: see %s --help", err, c.CommandPath()))
		}
		return nil
	}
}

// asGroup adds subcommands to c. Without arguments c shows its help, and for an unknown word it suggests a subcommand.
func asGroup(c *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	c.AddCommand(subcommands...)
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
		path := c.CommandPath()
		quoted := func(name string) string { return quotedName(path + " " + name) }
		near := suggestion(args[0], names, quoted, path+" --help")
		if top, _, err := c.Root().Find(args[:1]); err == nil && top != c.Root() && similar(args[0], names) == "" {
			near = fmt.Sprintf(": did you mean %q? See %[1]s --help", top.CommandPath())
		}
		return usage(fmt.Errorf("there is no command %q%s", path+" "+args[0], near))
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return c
}

// nearestFlag explains an invalid value, and suggests a flag for an unknown one.
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
	dashed := func(name string) string { return "--" + name }
	name := unknown.GetSpecifiedName()
	return usage(fmt.Errorf("there is no flag %q%s", name, suggestion(name, names, dashed, c.CommandPath()+" --help")))
}

// allowedBy says which values a flag accepts.
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

// parseIDs parses ids and drops duplicates.
func parseIDs(args []string) ([]int64, error) {
	found := make([]int64, 0, len(args))
	for _, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id < 1 {
			return nil, usage(fmt.Errorf("%q is not an id: a number from a listing is allowed", show.Text(arg)))
		}
		if !slices.Contains(found, id) {
			found = append(found, id)
		}
	}
	return found, nil
}
