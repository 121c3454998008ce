package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCmd prints a completion script. The scripts know nothing: they ask this binary, so they never grow stale.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (c *completionCmd) Help() string {
	return `Examples:

  bash: source <(carillon completion bash)
  zsh:  carillon completion zsh > "${fpath[1]}/_carillon"
  fish: carillon completion fish > ~/.config/fish/completions/carillon.fish`
}

// completeWord is the hidden first argument by which the scripts ask.
const completeWord = "__complete"

var completionScripts = map[string]string{
	"bash": `_carillon() {
	local IFS=$'\n'
	COMPREPLY=($("${COMP_WORDS[0]}" ` + completeWord + ` "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _carillon carillon
`,
	"zsh": `#compdef carillon
_carillon() {
	local -a found
	found=("${(@f)$("${words[1]}" ` + completeWord + ` "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n "${found[1]}" ]]; then
		compadd -a found
	else
		_files
	fi
}
if [[ "$funcstack[1]" = "_carillon" ]]; then
	_carillon "$@"
else
	compdef _carillon carillon
fi
`,
	"fish": `complete -c carillon -a '(carillon ` + completeWord + ` (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
`,
}

func (c *completionCmd) Run(a *app) error {
	_, err := io.WriteString(a.stdout, completionScripts[c.Shell])
	return err
}

// complete prints what may stand in place of the last word, one candidate on each line; nothing where a file may.
func complete(w io.Writer, root *kong.Node, words []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	node, wanted, args := root, (*kong.Flag)(nil), 0
	for _, word := range words[:len(words)-1] {
		switch {
		case wanted != nil:
			wanted = nil
		case strings.HasPrefix(word, "-"):
			wanted = takesValue(node, word)
		default:
			if child := childOf(node, word); child != nil {
				node, args = child, 0
			} else {
				args++
			}
		}
	}
	last := words[len(words)-1]
	for _, candidate := range candidates(node, wanted, args, words) {
		if strings.HasPrefix(candidate, last) {
			fmt.Fprintln(w, candidate)
		}
	}
}

func candidates(node *kong.Node, wanted *kong.Flag, args int, words []string) []string {
	last := words[len(words)-1]
	if wanted != nil {
		return append(enumOf(wanted.Value), names(node, wanted.Name, words)...)
	}
	var found []string
	if strings.HasPrefix(last, "-") {
		for n := node; n != nil; n = n.Parent {
			for _, f := range n.Flags {
				if !f.Hidden {
					found = append(found, "--"+f.Name)
				}
			}
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	for _, child := range node.Children {
		if !child.Hidden {
			found = append(found, child.Name)
		}
	}
	if args < len(node.Positional) {
		found = append(found, enumOf(node.Positional[args])...)
		found = append(found, names(node, node.Positional[args].Name, words)...)
	}
	return found
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

// takesValue returns the flag whose value is the next word, or nil.
func takesValue(node *kong.Node, word string) *kong.Flag {
	if strings.Contains(word, "=") {
		return nil
	}
	for n := node; n != nil; n = n.Parent {
		for _, f := range n.Flags {
			if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				if f.IsBool() {
					return nil
				}
				return f
			}
		}
	}
	return nil
}

func enumOf(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}
