package module

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"carillon/backend/core/schema"
)

// kotlinModifiers may stand between an annotation and fun.
var kotlinModifiers = []string{
	"public", "private", "internal", "protected", "suspend", "inline", "tailrec", "operator", "infix", "external",
	"override", "open", "abstract", "final", "expect", "actual",
}

// kotlinAnnotations are ours, by their names in Kotlin. Export is accepted and means nothing: Cron alone makes the verb.
var kotlinAnnotations = map[string]string{
	"Cron": "cron", "Timeout": "timeout", "Timezone": "timezone", "Catchup": "catchup", "Overlap": "overlap",
	"Retry": "retry", "Concurrency": "concurrency",
}

// readKotlin reads the annotated functions of the .kt files, given relative to s.Dir. Only heads of top-level functions are
// understood; whether the rest compiles is for Kotlin's own tools to say.
func (s *Source) readKotlin(files []string) (schema.Where, schema.Errors, error) {
	s.Module = schema.Module{Language: schema.Kotlin, Name: filepath.Base(s.Dir)}
	s.Funcs = map[string]string{}
	slices.Sort(files)
	k := kotlinReader{source: s, where: schema.Where{}}
	k.where[schema.Part{Verb: -1, Name: schema.PartName}] = schema.Place{Span: schema.Span{Position: schema.Position{File: s.shown(s.Dir)}}}
	dirs := map[string]bool{}
	for _, name := range files {
		full := filepath.Join(s.Dir, name)
		text, err := os.ReadFile(full)
		if err != nil {
			return nil, nil, fmt.Errorf("read Kotlin file: %w", err)
		}
		s.inputs = append(s.inputs, inputFile{filepath.ToSlash(name), full})
		s.watch = append(s.watch, full)
		if dir := filepath.Dir(full); dir != s.Dir && !dirs[dir] {
			dirs[dir] = true
			s.watch = append(s.watch, dir)
		}
		k.file(full, string(text))
	}
	for _, name := range []string{"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradle.properties", "gradle/libs.versions.toml", "pom.xml"} {
		if full := filepath.Join(s.Dir, filepath.FromSlash(name)); isRegular(full) {
			s.inputs = append(s.inputs, inputFile{name, full})
			s.watch = append(s.watch, full)
		}
	}
	return k.where, k.faults, nil
}

// kotlinReader reads one file after the other. Only Read's goroutine touches it.
type kotlinReader struct {
	source  *Source
	where   schema.Where
	faults  schema.Errors
	named   schema.Place // the package clause that named the module
	inside  string       // of the current file: its path as shown,
	lines   []string     // its lines,
	starts  []int        // where they start,
	tokens  []kotlinToken
	next    int
	depth   int                 // of braces
	pkg     schema.Place        // its package clause
	pkgName string              //
	pending []schema.Annotation // what stands before the next declaration
	hidden  bool                // one of the modifiers makes it private
	verbAt  schema.Span         // a @Verb before it
}

func (k *kotlinReader) file(path, text string) {
	k.inside, k.lines = k.source.shown(path), strings.Split(text, "\n")
	k.starts = k.starts[:0]
	for offset, i := 0, 0; i < len(k.lines); i++ {
		k.starts = append(k.starts, offset)
		offset += len(k.lines[i]) + 1
	}
	k.tokens, k.next, k.depth = kotlinTokens(text), 0, 0
	k.pkg, k.pkgName = schema.Place{}, ""
	k.drop()
	for k.next < len(k.tokens) {
		t := k.tokens[k.next]
		k.next++
		switch {
		case t.kind == kotlinMark && t.text == "@":
			k.annotation(t)
		case t.kind == kotlinWord && !t.quoted && t.text == "fun" && (k.peek(0).kind == kotlinWord || k.peek(0).text == "<"):
			k.function()
		case t.kind == kotlinWord && !t.quoted && slices.Contains(kotlinModifiers, t.text):
			k.hidden = k.hidden || slices.Contains([]string{"private", "internal", "protected"}, t.text)
		case t.kind == kotlinWord && t.text == "package" && k.pkgName == "" && k.depth == 0:
			k.packageClause()
		default:
			k.misplaced("it stands above a function, not above " + describe(t))
			k.drop()
			if t.kind == kotlinMark && t.text == "{" {
				k.depth++
			} else if t.kind == kotlinMark && t.text == "}" {
				k.depth--
			}
		}
	}
	k.misplaced("it stands above a function")
}

// peek is the token n after the next one; a token of no kind past the end.
func (k *kotlinReader) peek(n int) kotlinToken {
	if k.next+n < len(k.tokens) {
		return k.tokens[k.next+n]
	}
	return kotlinToken{}
}

func (k *kotlinReader) mark(text string) bool {
	if t := k.peek(0); t.kind == kotlinMark && t.text == text {
		k.next++
		return true
	}
	return false
}

// drop forgets what stood before a declaration.
func (k *kotlinReader) drop() { k.pending, k.hidden, k.verbAt = nil, false, schema.Span{} }

func (k *kotlinReader) packageClause() {
	last := k.peek(0)
	for last.kind == kotlinWord {
		k.next++
		k.pkgName, k.pkg = last.text, schema.Place{Span: k.span(last.offset, len(last.text))}
		if !k.mark(".") {
			break
		}
		last = k.peek(0)
	}
}

// annotation reads @Name, @pkg.Name, @file:Name and the arguments after it.
func (k *kotlinReader) annotation(at kotlinToken) {
	name := k.peek(0)
	if name.kind != kotlinWord {
		return
	}
	k.next++
	for k.mark(".") || k.mark(":") {
		if k.peek(0).kind != kotlinWord {
			return
		}
		name = k.peek(0)
		k.next++
	}
	var args []kotlinToken
	if t := k.peek(0); t.kind == kotlinMark && t.text == "(" {
		args = k.parenthesised()
	}
	if name.text == "Verb" && len(args) == 0 {
		k.verbAt = k.span(at.offset, name.offset+len(name.text)-at.offset)
		return
	}
	ours, known := kotlinAnnotations[name.text]
	if !known {
		if strings.EqualFold(name.text, "cron") && len(args) > 0 && args[0].kind == kotlinString {
			k.fault(at.offset, name.offset+len(name.text)-at.offset, `did you mean "@Cron"?`, "unknown directive %q", "@"+name.text)
		}
		return
	}
	a := schema.Annotation{Name: ours, Written: "@" + name.text, At: k.span(at.offset, name.offset+len(name.text)-at.offset)}
	if len(args) > 2 && args[0].kind == kotlinWord && args[1].text == "=" { // @Cron(expression = "..")
		args = args[2:]
	}
	if len(args) > 0 && args[len(args)-1].text == "," {
		args = args[:len(args)-1]
	}
	switch {
	case len(args) == 1 && args[0].kind == kotlinString && args[0].plain:
		a.Args = strings.TrimSpace(args[0].text)
		a.ArgsAt = k.span(args[0].offset+strings.Index(args[0].text, a.Args), len(a.Args))
	case ours == "cron" || k.hasCron():
		k.fault(at.offset, name.offset+len(name.text)-at.offset, `write `+a.Written+`("..."), without names, templates or escapes`,
			"%s needs one string literal", a.Written)
		if ours != "cron" {
			return
		}
		a.Name = "unread" // the function is a verb all the same; its other faults are worth reporting
	default: // another library's annotation of the same name
		return
	}
	k.pending = append(k.pending, a)
}

func (k *kotlinReader) hasCron() bool {
	return slices.ContainsFunc(k.pending, func(a schema.Annotation) bool { return a.Name == "cron" || a.Name == "unread" })
}

// parenthesised returns the tokens between the parenthesis that comes next and its partner.
func (k *kotlinReader) parenthesised() []kotlinToken {
	k.next++
	from, depth := k.next, 1
	for ; k.next < len(k.tokens); k.next++ {
		if t := k.tokens[k.next]; t.kind == kotlinMark {
			switch t.text {
			case "(", "[", "{":
				depth++
			case ")", "]", "}":
				depth--
			}
		}
		if depth == 0 {
			k.next++
			return k.tokens[from : k.next-1]
		}
	}
	return k.tokens[from:]
}

// misplaced reports a Cron that stands on no function. Options without one may be another library's.
func (k *kotlinReader) misplaced(hint string) {
	if !k.hasCron() {
		return
	}
	for _, a := range k.pending {
		k.faults = append(k.faults, &schema.Error{Span: a.At, Hint: hint, Message: fmt.Sprintf("unexpected directive %q", a.Written)})
	}
}

func (k *kotlinReader) fault(offset, length int, hint, format string, args ...any) {
	k.faults = append(k.faults, &schema.Error{Span: k.span(offset, length), Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// span is the place of length bytes at offset of the current file, cut at the end of its line.
func (k *kotlinReader) span(offset, length int) schema.Span {
	i, found := slices.BinarySearch(k.starts, offset)
	if !found {
		i--
	}
	column := offset - k.starts[i]
	line := strings.TrimSuffix(k.lines[i], "\r")
	return schema.Span{
		Position: schema.Position{File: k.inside, Line: i + 1, Column: column + 1},
		Source:   line,
		Length:   max(0, min(length, len(line)-column)),
	}
}

// function reads the head of a function, after fun, and makes a verb of it when a Cron stands before it.
func (k *kotlinReader) function() {
	defer k.drop()
	if t := k.peek(0); t.kind == kotlinMark && t.text == "<" {
		k.typeParameters()
	}
	name := k.peek(0)
	if name.kind != kotlinWord {
		return
	}
	k.next++
	receiver := false
	for k.mark(".") || k.mark("?") { // fun Receiver.name
		receiver = true
		if k.peek(0).kind == kotlinWord {
			name = k.peek(0)
			k.next++
		}
	}
	if !k.hasCron() {
		if k.verbAt.Line > 0 && k.depth == 0 && !receiver {
			k.faults = append(k.faults, &schema.Error{
				Span: k.verbAt, Message: `directive "@Verb" is not read yet`,
				Hint: "of Kotlin the functions with @Cron are read, without data classes; write verbs with a request in Go, or a runner that registers its schema itself",
			})
		}
		return
	}
	switch {
	case k.depth > 0:
		k.misplaced("only a top-level function can be a verb: write one that calls " + name.text)
		return
	case receiver:
		k.misplaced("an extension function can not be a verb: write a function that calls " + name.text)
		return
	}
	k.verb(name)
}

func (k *kotlinReader) typeParameters() {
	depth := 0
	for ; k.next < len(k.tokens); k.next++ {
		switch k.tokens[k.next].text {
		case "<":
			depth++
		case ">":
			if depth--; depth == 0 {
				k.next++
				return
			}
		}
	}
}

// verb adds the function whose parameters come next.
func (k *kotlinReader) verb(name kotlinToken) {
	s := k.source
	i := len(s.Module.Verbs)
	v := schema.Verb{Name: verbName(name.text), Request: schema.Unit, Response: schema.Unit}
	part := func(p string) schema.Part { return schema.Part{Verb: i, Name: p} }
	unread := slices.ContainsFunc(k.pending, func(a schema.Annotation) bool { return a.Name == "unread" })
	if !unread {
		k.faults = append(k.faults, schema.Annotate(&v, i, k.pending, k.where)...)
	}
	k.where[part(schema.PartName)] = schema.Place{Span: k.span(name.offset, len(name.text))}
	if k.hidden {
		k.fault(name.offset, len(name.text), "remove private, internal or protected", "verb name must be exported")
	}
	if t := k.peek(0); t.kind != kotlinMark || t.text != "(" {
		return
	}
	if t, ok := request(k.parenthesised()); ok {
		v.Request = t.text
		k.where[part(schema.PartRequest)] = schema.Place{Span: k.span(t.offset, len(t.text))}
	}
	if k.mark(":") {
		if t, ok := k.response(); ok {
			v.Response = t.text
			k.where[part(schema.PartResponse)] = schema.Place{Span: k.span(t.offset, len(t.text))}
		}
	}
	if !unread {
		k.name()
		s.Module.Verbs = append(s.Module.Verbs, v)
		s.Funcs[v.Name] = name.text
	}
}

// request finds the first parameter that is not the leading context, and returns its type.
func request(params []kotlinToken) (kotlinToken, bool) {
	depth, index, colon := 0, 0, false
	for i, t := range params {
		if t.kind == kotlinMark {
			switch t.text {
			case "(", "<", "[", "{":
				depth++
			case ")", ">", "]", "}":
				depth--
			case ",":
				if depth == 0 {
					index, colon = index+1, false
				}
			case ":":
				colon = colon || depth == 0
			}
			continue
		}
		if t.kind != kotlinWord || depth > 0 || !colon {
			continue
		}
		if i+2 < len(params) && params[i+1].text == "." { // a qualified name: its last word counts
			continue
		}
		if index > 0 || t.text != "Context" {
			return t, true
		}
	}
	return kotlinToken{}, false
}

// response returns the declared result type when it is not Unit.
func (k *kotlinReader) response() (kotlinToken, bool) {
	t := k.peek(0)
	for t.kind == kotlinWord {
		k.next++
		if !k.mark(".") {
			break
		}
		t = k.peek(0)
	}
	return t, t.kind != kotlinEnd && t.text != schema.Unit
}

// name takes the module's name from the package of the first file with a verb.
func (k *kotlinReader) name() {
	module := schema.Part{Verb: -1, Name: schema.PartName}
	switch {
	case k.pkgName == "":
	case k.named.Line == 0:
		k.named, k.where[module], k.source.Module.Name = k.pkg, k.pkg, path.Base(k.pkgName)
	case k.pkgName != k.source.Module.Name:
		k.faults = append(k.faults, &schema.Error{
			Span: k.pkg.Span, Hint: "the first is at " + k.named.Position.String(),
			Message: fmt.Sprintf("verbs of one module stand in the packages %s and %s", k.source.Module.Name, k.pkgName),
		})
		k.named = k.pkg
		k.source.Module.Name = k.pkgName
	}
}
