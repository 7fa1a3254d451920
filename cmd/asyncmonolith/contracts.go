package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

func schemaCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "schema NAME", Short: "Show the payloads of a consumer as JSON Schema", Args: checkArgs(exactlyOne("consumer", "consumers list")),
		Long: "Show the payloads of a consumer as JSON Schema, from the last report of a processor. Reports older than a week are\n" +
			"ignored.",
		Example:           "  asyncmonolith consumers schema charge-card",
		ValidArgsFunction: a.completeArg(consumerNames),
		RunE: a.onSession(func(ctx context.Context, session *operator.Session, args []string) error {
			return showSchema(ctx, a.output, session, args[0])
		}),
	}
}

func showSchema(ctx context.Context, out *output, session *operator.Session, name string) error {
	found, err := session.Consumers().Schemas(ctx, name)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		if err := checkKnown(ctx, session, name, "see asyncmonolith consumers list"); err != nil {
			return err
		}
		return fmt.Errorf("schema of consumer %q: %w: no processor has reported one within a week", name, errNotFound)
	}
	for _, s := range found {
		if out.json {
			err = out.line(s)
		} else {
			err = errors.Join(out.say("%s, schema %d", s.PayloadType, s.Version), out.lines(show.JSONLines(string(s.Schema))))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type asyncAPICommand struct {
	app            *app
	title, version string
}

func (x *asyncAPICommand) command() *cobra.Command {
	c := &cobra.Command{
		Use: "asyncapi", Short: "Write an AsyncAPI 3.0 document", Args: checkArgs(noArgs),
		Long: "Write an AsyncAPI 3.0 document in JSON: the payloads, consumers, receivers and destinations of all programs that\n" +
			"reported within a week.",
		Example: "  asyncmonolith asyncapi --title Shop > asyncapi.json",
		RunE:    x.app.onSession(x.run),
	}
	c.Flags().StringVar(&x.title, "title", "asyncmonolith", "the title of the document")
	c.Flags().StringVar(&x.version, "api-version", "1.0.0", "the version of the document")
	return c
}

func (x *asyncAPICommand) run(ctx context.Context, session *operator.Session, _ []string) error {
	text, err := session.AsyncAPI(ctx, x.title, x.version)
	if err != nil {
		return err
	}
	return x.app.output.lines(show.JSONLines(string(text)))
}
