package main

import (
	"github.com/spf13/cobra"
)

// commands are all of them, in the order in which help lists them.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.statusCommand(),
		a.consumersCommand(),
		a.messagesCommand(),
		a.explainCommand(),
		a.poisonedCommand(),
		a.requeueCommand(),
		a.discardCommand(),
		a.schedulesCommand(),
		a.projectionsCommand(),
		a.processesCommand(),
		a.operationsCommand(),
		a.migrateCommand(),
		a.doctorCommand(),
		a.demoCommand(),
		a.topCommand(),
	}
}
