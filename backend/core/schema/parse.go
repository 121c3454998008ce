package schema

import (
	"strconv"
	"strings"
)

// Parse reads the text form. It reports every line that it cannot understand, as Errors, with the module that the others
// make; file is the name that their positions carry and may be empty. It does not say whether the schema is any good:
// ValidateSource does, with the places returned here. Indentation, blank lines and // comments mean nothing.
func Parse(file, text string) (Module, Where, error) {
	p := parser{file: file, where: Where{}, module: Module{Language: Go}}
	if len(text) > MaxTextBytes {
		p.errors.add(Span{Position: Position{File: file}}, "", "a schema has at most %d bytes, not %d", MaxTextBytes, len(text))
		return p.module, p.where, p.errors.Err()
	}
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		p.line(n, strings.TrimSuffix(line, "\r"))
		if len(p.errors) >= maxErrors {
			p.errors.add(Span{Position: Position{File: file, Line: n}}, "", "too many errors")
			return p.module, p.where, p.errors.Err()
		}
	}
	p.endVerb()
	if p.data != nil {
		p.errors.add(p.dataAt, "end it with a line that is }", "data %s has no end", p.data.Name)
		p.endData()
	}
	p.errors.Sort()
	return p.module, p.where, p.errors.Err()
}

// maxErrors bounds what is reported of one text.
const maxErrors = 100

type parser struct {
	file   string
	module Module
	where  Where
	errors Errors

	sawModule bool
	inVerb    bool         // the last of module.Verbs is still open for annotations
	pending   []Annotation // those of the open verb
	data      *Data        // the type whose fields come, nil outside of one
	dataAt    Span
}

func (p *parser) line(n int, line string) {
	body := strings.TrimSpace(line)
	at := Span{
		Position: Position{File: p.file, Line: n, Column: 1 + strings.Index(line, body)},
		Source:   line,
		Length:   len(body),
	}
	word, _, _ := strings.Cut(strings.ReplaceAll(body, "\t", " "), " ")
	switch {
	case body == "" || strings.HasPrefix(body, "//"):
	case p.data != nil && body == "}":
		p.endData()
	case p.data != nil:
		p.fieldLine(body, at)
	case word == "data":
		p.dataLine(body, at)
	case word == "module":
		p.moduleLine(body, at)
	case word == "verb" || word == "export":
		p.verbLine(body, at)
	case strings.HasPrefix(body, "+"):
		p.annotationLine(word, body, at)
	default:
		p.errors.add(at.Cut(0, len(word)), "a line is module NAME, verb NAME(REQUEST) RESPONSE, +ANNOTATION or data NAME {", "unexpected %q", word)
	}
}

func (p *parser) moduleLine(body string, at Span) {
	words := strings.Fields(body)
	if p.sawModule || p.inVerb || len(p.module.Verbs)+len(p.module.Data) > 0 {
		p.errors.add(at, "", "the module is named once, before its verbs")
		return
	}
	p.sawModule = true
	if len(words) < 2 || len(words) > 3 {
		p.errors.add(at, "module NAME, and the language when it is not go", "a module line has one name")
		return
	}
	p.module.Name = words[1]
	p.where[Part{-1, PartName}] = Place{Span: pieceAt(at, body, words[1], len("module"))}
	if len(words) == 3 {
		p.module.Language = words[2]
		p.where[Part{-1, PartLanguage}] = Place{Span: at.Cut(strings.LastIndex(body, words[2]), len(words[2]))}
	}
}

func (p *parser) verbLine(body string, at Span) {
	p.endVerb()
	rest, exported := body, false
	if after, ok := cutWord(rest, "export"); ok {
		rest, exported = after, true
	}
	rest, ok := cutWord(rest, "verb")
	open, shut := strings.IndexByte(rest, '('), strings.IndexByte(rest, ')')
	if !ok || open <= 0 || shut < open {
		p.errors.add(at, "verb NAME(REQUEST) RESPONSE", "not a verb")
		return
	}
	v := Verb{
		Name:     strings.TrimSpace(rest[:open]),
		Request:  strings.TrimSpace(rest[open+1 : shut]),
		Response: strings.TrimSpace(rest[shut+1:]),
		Exported: exported,
	}
	request, response := v.Request, v.Response // as they stand there
	v.Request, v.Response = orUnit(canonicalType(request)), orUnit(canonicalType(response))
	if v.Name == "" || strings.ContainsAny(v.Name+oddType(v.Request)+oddType(v.Response), " \t\r()") {
		p.errors.add(at, "verb NAME(REQUEST) RESPONSE", "not a verb")
		return
	}
	if len(p.module.Verbs) >= MaxVerbs {
		p.errors.add(at, "", "a module has at most %d verbs", MaxVerbs)
		return
	}
	i := len(p.module.Verbs)
	from := len(body) - len(rest)
	p.where[Part{i, PartName}] = Place{Span: pieceAt(at, body, v.Name, from)}
	p.where[Part{i, PartRequest}] = Place{Span: pieceAt(at, body, request, from+open)}
	p.where[Part{i, PartResponse}] = Place{Span: pieceAt(at, body, response, from+shut)}
	p.module.Verbs = append(p.module.Verbs, v)
	p.inVerb = true
}

func (p *parser) annotationLine(word, body string, at Span) {
	if !p.inVerb {
		p.errors.add(at.Cut(0, len(word)), "it stands below its verb", "unexpected annotation %q", word)
		return
	}
	args := strings.TrimSpace(body[len(word):])
	a := Annotation{Name: word[1:], Args: args, Written: word, At: at.Cut(0, len(word))}
	if a.Name == "export" {
		p.errors.add(a.At, "write export verb NAME(REQUEST) RESPONSE", "unknown annotation %q", word)
		return
	}
	if args != "" {
		a.ArgsAt = at.Cut(strings.LastIndex(body, args), len(args))
	}
	if len(p.pending) >= maxErrors {
		p.errors.add(a.At, "", "too many annotations of one verb")
		return
	}
	p.pending = append(p.pending, a)
}

// endVerb applies the annotations of the verb that is open.
func (p *parser) endVerb() {
	if p.inVerb {
		i := len(p.module.Verbs) - 1
		p.errors = append(p.errors, Annotate(&p.module.Verbs[i], i, p.pending, p.where)...)
	}
	p.inVerb, p.pending = false, nil
}

// oddType is the text of what is no type.
func oddType(text string) string {
	if _, ok := parseType(text); ok {
		return ""
	}
	return text
}

// dataLine opens a data type.
func (p *parser) dataLine(body string, at Span) {
	p.endVerb()
	name, _ := cutWord(body, "data")
	name, empty := strings.CutSuffix(name, "}")
	name, ok := strings.CutSuffix(strings.TrimSpace(name), "{")
	name = strings.TrimSpace(name)
	if !ok || name == "" || strings.ContainsAny(name, " \t\r{}") {
		p.errors.add(at, "data NAME {", "not a data type")
		return
	}
	if len(p.module.Data) >= MaxData {
		p.errors.add(at, "", "a module has at most %d data types", MaxData)
		return
	}
	p.where[PartData(len(p.module.Data))] = Place{Span: pieceAt(at, body, name, len("data"))}
	p.data, p.dataAt = &Data{Name: name}, at
	if empty {
		p.endData()
	}
}

func (p *parser) endData() {
	p.module.Data = append(p.module.Data, *p.data)
	p.data = nil
}

// fieldLine reads NAME TYPE, NAME? TYPE, and both with the name in quotes.
func (p *parser) fieldLine(body string, at Span) {
	const form = "NAME TYPE, or NAME? TYPE where it may be left out"
	var f Field
	rest := body
	if body[0] == '"' {
		quoted, err := strconv.QuotedPrefix(body)
		if err != nil {
			p.errors.add(at, form, "not a field")
			return
		}
		f.Name, _ = strconv.Unquote(quoted)
		rest = body[len(quoted):]
	} else {
		n := strings.IndexFunc(body, func(c rune) bool { return c == ' ' || c == '\t' || c == '?' })
		if n < 0 {
			n = len(body)
		}
		if f.Name, rest = body[:n], body[n:]; !bareName(f.Name) {
			p.errors.add(at.Cut(0, n), form+"; a name that is no plain word is in quotes", "not a field")
			return
		}
	}
	nameLength := len(body) - len(rest)
	rest, f.Optional = strings.CutPrefix(rest, "?")
	written := strings.Trim(rest, " \t")
	if written == "" || written == rest {
		p.errors.add(at, form, "not a field")
		return
	}
	if len(p.data.Fields) >= MaxFields {
		p.errors.add(at, "", "data %s has more than %d fields", p.data.Name, MaxFields)
		return
	}
	f.Type = canonicalType(written)
	i, j := len(p.module.Data), len(p.data.Fields)
	p.where[PartField(i, j)] = Place{Span: at.Cut(0, nameLength)}
	p.where[PartFieldType(i, j)] = Place{Span: at.Cut(len(body)-len(strings.TrimLeft(rest, " \t")), len(written))}
	p.data.Fields = append(p.data.Fields, f)
}

// cutWord takes a leading word and the blanks after it off s.
func cutWord(s, word string) (string, bool) {
	rest, ok := strings.CutPrefix(s, word)
	trimmed := strings.TrimLeft(rest, " \t")
	return trimmed, ok && len(trimmed) < len(rest)
}

// pieceAt is the span of piece, which stands in body somewhere after byte from; the whole line when it does not.
func pieceAt(at Span, body, piece string, from int) Span {
	i := strings.Index(body[from:], piece)
	if i < 0 {
		return at
	}
	return at.Cut(from+i, len(piece))
}
