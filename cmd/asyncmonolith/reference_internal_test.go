package main

// The reference is made of the commands themselves, which the command does not export.

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/reference/commands.md anew")

// TestGuideToCommands compares docs/reference/commands.md with the help of each command.
func TestGuideToCommands(t *testing.T) {
	const file = "../../docs/reference/commands.md"
	want := commandsPage(commandTree())
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of date: (cd cmd/asyncmonolith && go test -run TestGuideToCommands -update .)", file)
	}
	for _, command := range []string{"## status\n", "### operations run ID\n", "## completion"} {
		if !strings.Contains(want, command) {
			t.Errorf("got no heading %q", command)
		}
	}
}

// commandsPage is the help of all commands, in the order of their groups.
func commandsPage(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Commands of asyncmonolith\n\nGenerated from the help of the commands: " +
		"`(cd cmd/asyncmonolith && go test -run TestGuideToCommands -update .)`. [The command](../cli.md) is the guide to them.\n\n" +
		"Every command has these flags:\n\n")
	b.WriteString(flagsTable(root.PersistentFlags()))
	root.InitDefaultCompletionCmd()
	for _, group := range root.Groups() {
		for _, c := range root.Commands() {
			if c.GroupID == group.ID {
				writeCommand(&b, c, "##")
			}
		}
	}
	if c := child(root, "completion"); c != nil && c.GroupID == "" {
		writeCommand(&b, c, "##")
	}
	return b.String()
}

func writeCommand(b *strings.Builder, c *cobra.Command, heading string) {
	title := strings.TrimPrefix(c.UseLine(), c.Root().Name()+" ")
	fmt.Fprintf(b, "\n%s %s\n\n", heading, strings.TrimSuffix(strings.TrimSuffix(title, " [flags]"), " [command]"))
	fmt.Fprintf(b, "%s\n", strings.TrimSpace(cmp.Or(c.Long, c.Short)))
	if c.Example != "" {
		fmt.Fprintf(b, "\n```\n%s\n```\n", strings.ReplaceAll(strings.Trim(c.Example, "\n"), "  asyncmonolith", "asyncmonolith"))
	}
	if table := flagsTable(c.LocalNonPersistentFlags()); table != "" {
		b.WriteString("\n" + table)
	}
	for _, sub := range c.Commands() {
		if c.Name() == "completion" {
			break // cobra's own texts about each shell
		}
		writeCommand(b, sub, heading+"#")
	}
}

// flagsTable is a table of flags, or empty if there is none but help.
func flagsTable(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		kind, text := pflag.UnquoteUsage(f)
		value := f.DefValue
		if value == "[]" || value == "false" || kind == "TIME" {
			value = ""
		}
		if value != "" {
			value = " `" + value + "`"
		}
		name := strings.TrimSpace("--" + f.Name + " " + kind)
		fmt.Fprintf(&b, "| `%s` |%s | %s |\n", name, value, strings.ReplaceAll(text, "|", `\|`))
	})
	if b.Len() == 0 {
		return ""
	}
	return "| Flag | Default | |\n|---|---|---|\n" + b.String()
}
