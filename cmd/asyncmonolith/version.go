package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

type versionCommand struct{ app *app }

func (v *versionCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of this command", Args: checkArgs(noArgs),
		Long:    "Show the version of this command and the revision of its source, if the build has them. It needs no database.",
		Example: "  asyncmonolith version --json",
		RunE:    v.run,
	}
}

func (v *versionCommand) run(*cobra.Command, []string) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v.app.say("This build has no version.")
	}
	build := newBuild(info)
	text := "asyncmonolith " + build.Version
	if build.Revision != "" {
		text += ", revision " + build.Revision
	}
	if build.Modified {
		text += ", modified"
	}
	return v.app.result(build, text+", "+build.Go, nil)
}

// build is the version of this program.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // since that revision
	Go       string `json:"go"`
}

func newBuild(info *debug.BuildInfo) build {
	b := build{Version: info.Main.Version, Go: info.GoVersion}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == fmt.Sprint(true)
		}
	}
	return b
}
