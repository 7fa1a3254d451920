package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "What is wrong with the database and what runs on it, and how to cure it",
		Long: "What is wrong with the database and what runs on it, and how to cure it: the worst first, and what was\n" +
			"looked at and is fine. It changes nothing. It exits with 6 if there is a problem.",
		Example: "  asyncmonolith doctor --json",
		Args:    takes(nothing),
		RunE: func(c *cobra.Command, _ []string) error {
			session, err := a.session()
			if err != nil {
				return err
			}
			found, err := session.Doctor(c.Context())
			if err != nil {
				return err
			}
			return a.showFindings(found, true)
		},
	}
}

// showFindings writes findings, which are sorted by their severity, with their cures or without, and is an
// error if there is a problem.
func (a *app) showFindings(found []ops.Finding, remedies bool) error {
	problems := 0
	for start := 0; start < len(found); {
		end := start
		for end < len(found) && found[end].Severity == found[start].Severity {
			end++
		}
		if found[start].Severity == ops.Critical {
			problems = end - start
		}
		if err := a.showGroup(found[start:end], remedies, end == len(found)); err != nil {
			return err
		}
		start = end
	}
	if problems > 0 {
		return fmt.Errorf("%w: %s", errCheckFailed, many(problems, "critical finding"))
	}
	return nil
}

// showGroup writes findings of one severity: for people below a heading, and a remedy below those that it is
// for.
func (a *app) showGroup(found []ops.Finding, remedies, last bool) error {
	if a.json {
		for _, f := range found {
			if err := show.JSON(a.out, f); err != nil {
				return err
			}
		}
		return nil
	}
	t := show.Table{Columns: []show.Column{{Title: fmt.Sprintf("%d %s", len(found), found[0].Severity)}, {}}, Width: a.width}
	if found[0].Severity == ops.Warning {
		t.Columns[0].Title = many(len(found), "warning")
	}
	if found[0].Severity == ops.OK {
		for _, f := range found {
			t.Add(f.Check, f.Text)
		}
		return t.Write(a.out)
	}
	for i, f := range found {
		t.Add(f.Check, f.Subject)
		t.Below(f.Text)
		if remedies && (i+1 == len(found) || found[i+1].Check != f.Check || found[i+1].Remedy != f.Remedy) {
			t.Below("Remedy: " + f.Remedy)
		}
	}
	if err := t.Write(a.out); err != nil || last {
		return err
	}
	return a.say("")
}

// many is a number of things.
func many(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
