package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is which command this is, as it was built.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // since that revision
	Go       string `json:"go"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of this command", Args: takes(nothing),
		Long:    "Show the version of this command, and the revision of its source, as far as its build has them. It needs no database.",
		Example: "  asyncmonolith version --json",
		RunE: func(*cobra.Command, []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return a.say("This build does not tell its version.")
			}
			v := versionOfBuild(info)
			if a.json {
				return a.line(v)
			}
			text := "asyncmonolith " + v.Version
			if v.Revision != "" {
				text += ", revision " + v.Revision
			}
			if v.Modified {
				text += ", modified"
			}
			return a.say("%s, %s", text, v.Go)
		},
	}
}

// versionOfBuild is what a build says of itself.
func versionOfBuild(info *debug.BuildInfo) version {
	v := version{Version: info.Main.Version, Go: info.GoVersion}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == fmt.Sprint(true)
		}
	}
	return v
}
