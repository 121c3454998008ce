package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is what this binary calls itself; a release sets it.
const version = "0.1.0"

// versionCmd prints the version.
type versionCmd struct {
	listing
}

type versionJSON struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	Platform string `json:"platform"`
}

func (c *versionCmd) Help() string {
	return `Examples:

  carillon version
  carillon version -o json | jq -r .commit`
}

func (c *versionCmd) Run(a *app) error {
	v := versionJSON{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	return c.print(a, v, func() {
		line := fmt.Sprintf("carillon %s (%s, %s", v.Version, v.Go, v.Platform)
		if v.Commit != "" {
			line += ", commit " + v.Commit[:min(12, len(v.Commit))]
		}
		if v.Modified {
			line += ", modified"
		}
		fmt.Fprintln(a.stdout, line+")")
	})
}
