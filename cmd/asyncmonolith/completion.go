package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// completionTime bounds how long a shell waits for names.
const completionTime = time.Second

// completeArg completes the argument of a command that takes one.
func (a *app) completeArg(find func(context.Context, *operator.Session) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.completeFlag(find)(c, args, typed)
	}
}

// completeFlag completes the value of a flag with names from the database. It offers none after an error, and no name that a
// shell would show differently.
func (a *app) completeFlag(find func(context.Context, *operator.Session) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionTime)
		defer cancel()
		session, err := a.session(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, err := find(ctx, session)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		unsafe := func(name string) bool { return name == "" || show.Text(name) != name }
		return slices.DeleteFunc(names, unsafe), cobra.ShellCompDirectiveNoFileComp
	}
}
