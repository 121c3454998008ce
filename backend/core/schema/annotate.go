package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"carillon/backend/core/job"
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

// PartData names the i-th data type, PartField and PartFieldType a field of it and the field's type, all with Verb -1. The
// names are paths into the contract's Schema message.
func PartData(i int) Part { return Part{-1, fmt.Sprintf("data[%d].name", i)} }

func PartField(i, j int) Part { return Part{-1, fmt.Sprintf("data[%d].fields[%d].name", i, j)} }

func PartFieldType(i, j int) Part { return Part{-1, fmt.Sprintf("data[%d].fields[%d].type", i, j)} }

// Place is where a part was written, and for an annotation under which name.
type Place struct {
	Span
	Written string
}

// Where tells the places of a module's parts. A nil Where knows none.
type Where map[Part]Place

// Names of the annotations, in the order in which the text form prints them.
var annotationNames = []string{"verb", "cron", "timezone", "timeout", "catchup", "overlap", "retry", "concurrency", "unique"}

// ofSchedule are those that mean nothing without a cron.
var ofSchedule = map[string]string{
	"timezone": "a time zone is a schedule's",
	"catchup":  "catch-up is about the slots of a schedule",
	"overlap":  "overlap is about the slots of a schedule; how many jobs of a verb run at a time says ",
}

// AnnotationNames returns the names that Annotate understands.
func AnnotationNames() []string { return slices.Clone(annotationNames) }

// Annotate applies what was written about the verb with this index to it and notes the places in where. It reports what
// cannot be understood or does not belong; whether the values are any good is for Validate to say. All annotations of a
// verb are given at once, in the order of the source.
func Annotate(v *Verb, index int, as []Annotation, where Where) Errors {
	var es Errors
	has := func(name string) bool {
		return slices.ContainsFunc(as, func(a Annotation) bool { return a.Name == name })
	}
	hasCron := has("cron")
	declared := hasCron || has("verb") || len(as) > 0 && strings.HasPrefix(as[0].Written, "+") // below a verb line
	// A misspelt cron or verb is one fault, not one of each option beside it as well.
	misspelt := !declared && slices.ContainsFunc(as, func(a Annotation) bool {
		near := Nearest(a.Name, annotationNames)
		return near == "cron" || near == "verb"
	})
	seen := map[string]bool{}
	if hasCron {
		v.Cron = &Cron{}
	}
	for _, a := range as {
		switch {
		case a.Name == "export":
			if !declared && !misspelt {
				es.add(a.At, "add "+a.like("verb")+", or "+a.like("cron")+" and a schedule", "unexpected directive %q", a.Written)
			}
			v.Exported = true
		case !slices.Contains(annotationNames, a.Name):
			es = append(es, a.unknown())
			continue
		case misspelt:
			continue
		case !declared:
			es.add(a.At, "it stands beside a "+a.like("verb")+" or "+a.like("cron")+" on the same function", "unexpected directive %q", a.Written)
			continue
		case a.Name == "verb" && (hasCron || strings.HasPrefix(a.Written, "+")):
			hint := "the line above says so already"
			if hasCron {
				hint = a.like("cron") + " alone says that the function is a verb"
			}
			es.add(a.At, hint, "unexpected directive %q", a.Written)
			continue
		case !hasCron && ofSchedule[a.Name] != "":
			hint := ofSchedule[a.Name]
			if a.Name == "overlap" {
				hint += a.like("concurrency")
			}
			es.add(a.At, hint, "verb %s: %s needs a cron schedule", v.Name, a.Name)
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
	case "verb":
		if a.Args != "" {
			return a.wrong("it takes none: the request and the response are the function's", "argument", v)
		}
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
		if v.Cron != nil {
			v.Cron.Timeout = d
		} else {
			v.Timeout = d
		}
	case "catchup":
		c, ok := ParseCatchup(a.Args)
		if !ok {
			return a.wrong("one of none, last, all", "catchup", v)
		}
		v.Cron.Catchup = c
	case "overlap":
		o, ok := ParseOverlap(a.Args)
		if !ok {
			return a.wrong("one of skip, queue, allow, cancel", "overlap", v)
		}
		v.Cron.Overlap = o
	case "retry":
		return a.retry(v)
	case "concurrency":
		n, err := strconv.Atoi(a.Args)
		if err != nil || n < 1 || n > MaxConcurrency {
			return a.wrong(fmt.Sprintf("how many of its runs there may be at a time in the whole cluster, from 1 to %d", MaxConcurrency), "concurrency", v)
		}
		v.Concurrency = n
	case "unique":
		v.Unique = &Unique{}
		if a.Args == "" {
			return nil
		}
		d, err := time.ParseDuration(a.Args)
		if err != nil || d == 0 {
			return a.wrong("a window such as 1h, or nothing: then equal requests are one job while it lives", "unique window", v)
		}
		v.Unique.Window = d
	}
	return nil
}

// retryForm is what a retry looks like.
const retryForm = "write the runs in all, then the backoff and its ceiling where they matter: 5, 5 1s or 5 1s..1m"

// retry reads 5, 5 1s or 5 1s..1m. The fault points at the word that is wrong.
func (a Annotation) retry(v *Verb) *Error {
	v.Retry = &Retry{}
	words := strings.Fields(a.Args)
	if len(words) == 0 || len(words) > 2 {
		return a.wrong(retryForm, "retry", v)
	}
	n, err := strconv.Atoi(words[0])
	if err != nil || n < 1 || n > job.MaxAttempts {
		e := a.wrong(fmt.Sprintf("the runs in all, from 1 to %d: a retry has to end", job.MaxAttempts), "retry", v)
		e.Span = a.pointAt(words[0])
		return e
	}
	v.Retry.Attempts = n
	if len(words) == 1 {
		return nil
	}
	low, high, hasCeiling := strings.Cut(words[1], "..")
	backoff, err := time.ParseDuration(low)
	if err == nil && backoff != 0 {
		v.Retry.Backoff = backoff
		if !hasCeiling {
			return nil
		}
		var ceiling time.Duration
		if ceiling, err = time.ParseDuration(high); err == nil && ceiling != 0 {
			v.Retry.Ceiling = ceiling
			return nil
		}
	}
	e := a.wrong(retryForm, "retry", v)
	e.Span = a.pointAt(words[1])
	return e
}

// pointAt is the span of a word of the arguments.
func (a Annotation) pointAt(word string) Span {
	if i := strings.LastIndex(a.ArgsAt.Text(), word); i >= 0 {
		return a.ArgsAt.Cut(i, len(word))
	}
	return a.ArgsAt
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
	case strings.HasPrefix(prefix, "ftl:") && name != "cron" && name != "verb":
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
