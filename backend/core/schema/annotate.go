package schema

import (
	"slices"
	"strings"
	"time"
)

// Annotation is one statement about a verb as its author wrote it: a directive above a Go function, an annotation of a
// Kotlin one, a + line of the text form. What the three may say, and what is wrong with it, is decided here alone.
type Annotation struct {
	Name    string // cron, timeout, ..
	Args    string // what follows the name
	Written string // the name as it was written, e.g. ftl:cron
	At      Span   // the name
	ArgsAt  Span   // the arguments; the zero Span when there are none
}

// Part names what a fault can be about: the module (Verb is -1) or a verb by its index, and the name of the piece.
type Part struct {
	Verb int
	Name string
}

// The pieces beside the annotations' own names.
const (
	PartName     = "name"
	PartRequest  = "request"
	PartResponse = "response"
	PartLanguage = "language"
)

// Place is where a part was written, and for an annotation under which name.
type Place struct {
	Span
	Written string
}

// Where tells the places of a module's parts. A nil Where knows none.
type Where map[Part]Place

// Names of the annotations, in the order in which the text form prints them.
var annotationNames = []string{"cron", "timezone", "timeout", "catchup", "overlap"}

// AnnotationNames returns the names that Annotate understands.
func AnnotationNames() []string { return slices.Clone(annotationNames) }

// Annotate applies what was written about the verb with this index to it and notes the places in where. It reports what
// cannot be understood or does not belong; whether the values are any good is for Validate to say. All annotations of a
// verb are given at once, in the order of the source.
func Annotate(v *Verb, index int, as []Annotation, where Where) Errors {
	var es Errors
	hasCron := slices.ContainsFunc(as, func(a Annotation) bool { return a.Name == "cron" })
	// A misspelt cron is one fault, not one of each option beside it as well.
	misspelt := slices.ContainsFunc(as, func(a Annotation) bool { return Nearest(a.Name, annotationNames) == "cron" })
	seen := map[string]bool{}
	if hasCron {
		v.Cron = &Cron{}
	}
	for _, a := range as {
		switch {
		case a.Name == "export":
			if !hasCron && !misspelt {
				es.add(a.At, "only verbs that a clock starts can be deployed: add "+a.like("cron"), "unexpected directive %q", a.Written)
			}
			v.Exported = true
		case !slices.Contains(annotationNames, a.Name):
			es = append(es, a.unknown())
			continue
		case !hasCron && misspelt:
			continue
		case !hasCron:
			es.add(a.At, "it stands beside a "+a.like("cron")+" on the same function", "unexpected directive %q", a.Written)
			continue
		case seen[a.Name] && a.Name == "cron":
			es.add(a.At, "one schedule for each verb: write a second function that calls this one", "verb can not have multiple instances of cronjob")
			continue
		case seen[a.Name]:
			es.add(a.At, "", "verb can not have multiple instances of %s", a.Name)
			continue
		default:
			if e := a.apply(v); e != nil {
				es = append(es, e)
			}
		}
		seen[a.Name] = true
		if where != nil {
			at := a.ArgsAt
			if at.Line == 0 {
				at = a.At
			}
			where[Part{index, a.Name}] = Place{at, a.Written}
		}
	}
	return es
}

// apply sets the one field of the verb that the annotation is about.
func (a Annotation) apply(v *Verb) *Error {
	switch a.Name {
	case "cron":
		v.Cron.Schedule = oneBlank(a.Args)
	case "timezone":
		if a.Args == "" || strings.ContainsAny(a.Args, " \t") {
			return a.wrong("one IANA name, such as Europe/Paris or UTC", "time zone", v)
		}
		if v.Cron.TimeZone = a.Args; a.Args == "UTC" {
			v.Cron.TimeZone = ""
		}
	case "timeout":
		d, err := time.ParseDuration(a.Args)
		if err != nil {
			return a.wrong("write a duration such as 30s, 10m or 1h30m", "timeout", v)
		}
		if d == 0 {
			return a.wrong("a timeout is from 1s to 24h; without one a run gets "+durationWords(DefaultTimeout), "timeout", v)
		}
		v.Cron.Timeout = d
	case "catchup":
		c, ok := ParseCatchup(a.Args)
		if !ok {
			return a.wrong("one of none, last, all", "catchup", v)
		}
		v.Cron.Catchup = c
	case "overlap":
		o, ok := ParseOverlap(a.Args)
		if !ok {
			if slices.Contains([]string{"queue", "cancel", "allow"}, a.Args) {
				e := a.wrong("skip is what there is: a slot that comes during a run is skipped", "overlap", v)
				e.Message += ": not available yet"
				return e
			}
			return a.wrong("the one policy is skip", "overlap", v)
		}
		v.Cron.Overlap = o
	}
	return nil
}

// wrong is the fault of an annotation whose arguments cannot be read.
func (a Annotation) wrong(hint, what string, v *Verb) *Error {
	at := a.ArgsAt
	if at.Line == 0 {
		at = a.At
	}
	var es Errors
	es.add(at, hint, "verb %s: invalid %s %q", v.Name, what, a.Args)
	return es[0]
}

// unknown is the fault of an annotation whose name means nothing.
func (a Annotation) unknown() *Error {
	var es Errors
	switch near := Nearest(a.Name, annotationNames); {
	case near != "":
		es.add(a.At, "did you mean "+a.like(near)+"?", "unknown directive %q", a.Written)
	case a.Name == "verb":
		es.add(a.At, a.like("cron")+" alone says that the function is a verb", "unknown directive %q", a.Written)
	case a.Name == "retry":
		es.add(a.At, "a failed run uses up its slot", "directive %q is not available yet", a.Written)
	default:
		es.add(a.At, "known are "+strings.Join(annotationNames, ", "), "unknown directive %q", a.Written)
	}
	return es[0]
}

// like writes another annotation's name in the way this one's was written.
func (a Annotation) like(name string) string {
	prefix := strings.TrimSuffix(strings.ToLower(a.Written), strings.ToLower(a.Name))
	switch {
	case strings.HasPrefix(prefix, "@"):
		return prefix + strings.ToUpper(name[:1]) + name[1:]
	case strings.HasPrefix(prefix, "ftl:") && name != "cron":
		return "//carillon:" + name
	case strings.HasSuffix(prefix, ":"):
		return "//" + prefix + name
	}
	return prefix + name
}

// durationWords prints a duration without its zero parts: 5m, not 5m0s.
func durationWords(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
