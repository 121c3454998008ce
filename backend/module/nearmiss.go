package module

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"

	"carillon/backend/core/schema"
)

// nearMiss reports a comment that was meant as a directive and is none, because a job that silently never runs is the worst
// answer to a typing error: a blank after the slashes or the colon, a wrong case, a misspelt tool, a block comment.
func (r *reader) nearMiss(c *ast.Comment) {
	text, inBlock := strings.CutPrefix(c.Text, "/*")
	if !inBlock {
		r.nearMissLine(c.Slash, c.Text, c.Text[len("//"):], false)
		return
	}
	pos := c.Slash
	for i, line := range strings.Split(strings.TrimSuffix(text, "*/"), "\n") {
		if i == 0 {
			r.nearMissLine(pos, "/*"+line, line, true)
			pos += token.Pos(len("/*"))
		} else {
			r.nearMissLine(pos, line, line, true)
		}
		pos += token.Pos(len(line) + 1)
	}
}

// nearMissLine looks at one line of a comment: whole as it stands at pos, body without the comment's own marks.
func (r *reader) nearMissLine(pos token.Pos, whole, body string, inBlock bool) {
	meant, ok := meantDirective(body, inBlock)
	if !ok {
		return
	}
	whole = strings.TrimRight(whole, " \t\r")
	indent := len(whole) - len(strings.TrimLeft(whole, " \t"))
	r.faults = append(r.faults, &schema.Error{
		Span:    r.span(pos+token.Pos(indent), len(whole)-indent),
		Message: fmt.Sprintf("this comment is no directive: %q", whole[indent:]),
		Hint:    "write " + meant,
	})
}

// meantDirective says which directive the text of a comment was meant to be. Prose that merely begins with our name must
// not be caught: where blanks make a line look like prose, what follows has to look like the arguments.
func meantDirective(body string, inBlock bool) (string, bool) {
	text := strings.TrimLeft(body, " \t*")
	prose := inBlock || len(text) < len(body)
	word := text
	if i := strings.IndexFunc(text, func(c rune) bool { return c < '0' || c > 'z' || c == ':' }); i >= 0 {
		word = text[:i]
	}
	tool := schema.Nearest(word, tools)
	if tool == "" || tool == "ftl" && !strings.EqualFold(word, "ftl") {
		return "", false
	}
	rest := strings.TrimLeft(text[len(word):], " \t")
	rest, colon := strings.CutPrefix(rest, ":")
	trimmed := strings.TrimLeft(rest, " \t")
	prose = prose || !colon || len(trimmed) < len(rest) || len(rest)+len(word)+1 < len(text)
	name, args, _ := strings.Cut(strings.ReplaceAll(trimmed, "\t", " "), " ")
	args = strings.TrimSpace(args)
	canonical := schema.Nearest(name, schema.AnnotationNames())
	if canonical == "" {
		return "", false
	}
	if prose && !looksLikeArguments(canonical, args) {
		return "", false
	}
	if tool == "ftl" && canonical != "cron" && canonical != "verb" {
		tool = "carillon"
	}
	return strings.TrimSpace("//" + tool + ":" + canonical + " " + args), true
}

func looksLikeArguments(name, args string) bool {
	switch {
	case name == "verb":
		return args == ""
	case args == "":
		return name == "unique"
	}
	switch name {
	case "cron":
		return strings.ContainsRune("0123456789*?@", rune(args[0]))
	case "timeout", "retry", "concurrency", "unique":
		return '0' <= args[0] && args[0] <= '9'
	case "timezone":
		return !strings.Contains(args, " ") && (strings.Contains(args, "/") || args == "UTC")
	case "catchup":
		_, ok := schema.ParseCatchup(args)
		return ok
	default:
		return slices.Contains([]string{"skip", "queue", "allow", "cancel"}, args)
	}
}
