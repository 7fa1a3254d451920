package main

import (
	"github.com/spf13/cobra"
)

// addCommands adds all commands to root, in the groups that help shows.
func addCommands(root *cobra.Command, a *app) {
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Inspect:", []*cobra.Command{
			(&statusCommand{app: a}).command(), (&topCommand{app: a}).command(), (&doctorCommand{app: a}).command(),
			(&explainCommand{app: a}).command(), (&processesCommand{app: a}).command(), (&asyncAPICommand{app: a}).command(),
			(&serveCommand{app: a}).command(),
		}},
		{"Manage:", []*cobra.Command{
			consumersGroup(a), messagesGroup(a), poisonedGroup(a), consumedGroup(a), requeueCommand(a), newDiscard(a).command(),
			schedulesGroup(a), projectionsGroup(a), operationsGroup(a),
		}},
		{"Set up:", []*cobra.Command{
			(&migrateCommand{app: a}).command(), (&demoCommand{app: a}).command(), (&versionCommand{app: a}).command(),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.title
			root.AddCommand(c)
		}
		root.SetHelpCommandGroupID(group.title) // the last group
		root.SetCompletionCommandGroupID(group.title)
	}
	addCobras(root)
}

// addCobras adds cobra's own commands, with checked arguments like ours.
func addCobras(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Short, c.Example = "Show the help of a command", "  asyncmonolith help messages list"
			c.Long = c.Short + "."
			c.Args = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err == nil && found.HasSubCommands() && len(rest) > 0 {
					err = found.Args(found, rest)
				}
				return err
			}
		case "completion":
			c.Short, c.Example = "Write a completion script for a shell", "  asyncmonolith completion bash"
			c.Long = c.Short + ": bash, zsh, fish or powershell. The help of each shows how to load it."
			asGroup(c)
			for _, shell := range c.Commands() {
				shell.Example = "  asyncmonolith completion " + shell.Name()
				shell.Args = checkArgs(noArgs)
			}
		}
	}
}
