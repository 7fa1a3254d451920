package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

type doctorCommand struct{ app *app }

func (d *doctorCommand) command() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the database and its processes, and suggest remedies",
		Long: "Check the database and its processes, and suggest remedies. The worst findings come first; passed checks come\n" +
			"last. The command changes nothing. It exits with 6 if a finding is critical.",
		Example: "  asyncmonolith doctor --json",
		Args:    checkArgs(noArgs),
		RunE:    d.app.onSession(d.run),
	}
}

func (d *doctorCommand) run(ctx context.Context, session *operator.Session, _ []string) error {
	found, err := session.Doctor(ctx)
	if err != nil {
		return err
	}
	return findings(found).write(d.app.output, true)
}

// findings are sorted by severity.
type findings []ops.Finding

// write writes the findings and returns an error if one is critical.
func (found findings) write(o *output, remedies bool) error {
	critical := 0
	for start := 0; start < len(found); {
		end := start
		for end < len(found) && found[end].Severity == found[start].Severity {
			end++
		}
		if found[start].Severity == ops.Critical {
			critical = end - start
		}
		if err := found[start:end].writeGroup(o, remedies, end == len(found)); err != nil {
			return err
		}
		start = end
	}
	if critical > 0 {
		return fmt.Errorf("%w: %s", errCheckFailed, plural(critical, "critical finding"))
	}
	return nil
}

// writeGroup writes findings of one severity. Equal remedies in a row are written once.
func (found findings) writeGroup(o *output, remedies, last bool) error {
	if o.json {
		return list[ops.Finding]{}.write(o, found, nil)
	}
	t := show.Table{Columns: []show.Column{{Title: fmt.Sprintf("%d %s", len(found), found[0].Severity)}, {}}, Width: o.width}
	if found[0].Severity == ops.Warning {
		t.Columns[0].Title = plural(len(found), "warning")
	}
	if found[0].Severity == ops.OK {
		for _, f := range found {
			t.Add(f.Check, f.Text)
		}
		return t.Write(o.out)
	}
	for i, f := range found {
		t.Add(f.Check, f.Subject)
		t.Below(f.Text)
		if remedies && (i+1 == len(found) || found[i+1].Check != f.Check || found[i+1].Remedy != f.Remedy) {
			t.Below("Remedy: " + f.Remedy)
		}
	}
	if err := t.Write(o.out); err != nil || last {
		return err
	}
	return o.say("")
}
