package trigger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"carillon/backend/core/job"
	"carillon/backend/core/permission"
)

// Verb is what happened to a document.
type Verb string

const (
	Created  Verb = "CREATED"
	Updated  Verb = "UPDATED"
	Deleted  Verb = "DELETED"
	Notified Verb = "NOTIFIED" // published like the others, and matched by no rule
)

// eventVerbs are those that a rule may name.
var eventVerbs = []string{string(Created), string(Updated), string(Deleted)}

// changed stands among the values of a rule with a selector: the field is not what it was.
const changed = "!="

// Files is the type whose documents lie in directories.
const Files = "io.cozy.files"

// Rule is one rule of an @event trigger. Its verbs are CREATED, UPDATED and DELETED.
type Rule = permission.Rule

// ParseEvent reads the arguments of an @event trigger: rules `type[:VERBS[:values[:selector]]]`, one blank apart. The
// error is a *Fault.
func ParseEvent(arguments string) ([]Rule, error) {
	rules, err := permission.ReadRules(arguments, eventVerbs)
	if e, ok := errors.AsType[*permission.ScopeError](err); ok {
		return nil, badArguments("%s", e.Error())
	}
	return rules, err
}

// CheckEvent judges the arguments of an @event trigger. The error is a *Fault.
func CheckEvent(arguments string) error {
	_, err := ParseEvent(arguments)
	return err
}

// Change is what happened to one document, as its writer publishes it. Documents are JSON objects, and the writer gives
// what it knows: nothing is looked up later.
type Change struct {
	Tenant  string
	Type    string // of the document, e.g. io.cozy.files
	Verb    Verb
	ID      string          // empty: the document's _id
	Doc     json.RawMessage // as it is now; of a deletion as it was
	Old     json.RawMessage // as it was before an update; empty: not known
	Path    string          // of a file or directory: where it lies now, e.g. /foo/bar
	OldPath string          // where it lay before it was moved; empty: there, too
	Dirs    []Directory     // the directories above both paths, so that rules can name them by id
}

// Directory is a directory that a changed file lies in, or lay in.
type Directory struct {
	ID   string `json:"id"`
	Path string `json:"path"`
}

// Bounds of one change.
const (
	MaxDocument = 512 << 10 // bytes, of both documents together: they travel in a job's payload
	MaxDirs     = 1000
	MaxPath     = 4096 // bytes
)

// Check judges a published change. The error is a *Fault whose pointer names the field.
func (c Change) Check() error {
	fault := func(field, detail string) error {
		return &Fault{Pointer: "/" + field, Title: InvalidAttribute, Detail: detail}
	}
	if err := permission.CheckType(c.Type); err != nil || strings.HasSuffix(c.Type, "*") || len(c.Type) > job.MaxName {
		return fault("type", quote(c.Type)+" is no type of documents: lower-case letters, digits and _ between dots")
	}
	if !slices.Contains([]Verb{Created, Updated, Deleted, Notified}, c.Verb) {
		return fault("verb", "unknown verb "+quote(string(c.Verb))+" ("+strings.Join(eventVerbs, ", ")+")")
	}
	if !storable(c.ID, job.MaxKey) {
		return fault("id", "id is no text, or too long")
	}
	if len(c.Doc)+len(c.Old) > MaxDocument {
		return fault("doc", "the documents are longer than 512 KiB")
	}
	for field, doc := range map[string]json.RawMessage{"doc": c.Doc, "old": c.Old} {
		if len(doc) > 0 && !isObject(doc) {
			return fault(field, "must be a JSON object")
		}
	}
	if len(c.Dirs) > MaxDirs {
		return fault("dirs", "more than 1000 directories")
	}
	for _, d := range c.Dirs {
		if !storable(d.ID, job.MaxKey) || d.ID == "" || !isPath(d.Path) {
			return fault("dirs", "a directory has an id, and a path that begins with /")
		}
	}
	for field, path := range map[string]string{"path": c.Path, "old_path": c.OldPath} {
		if path != "" && !isPath(path) {
			return fault(field, "a path begins with / and is at most 4096 bytes long")
		}
	}
	return nil
}

// CheckIdempotency judges the key of a publication; an empty one is none. The error is a *Fault.
func CheckIdempotency(key string) error {
	if !storable(key, job.MaxKey) || strings.ContainsFunc(key, unicode.IsControl) {
		return &Fault{Pointer: "/idempotency_key", Title: InvalidAttribute, Detail: "idempotency key is no text, or longer than 256 bytes"}
	}
	return nil
}

// HashChanges tells one publication of a tenant's from another under the same idempotency key; carillon.publish() computes
// it alike, of documents as jsonb prints them.
func HashChanges(tenant string, changes []Change) []byte {
	h := sha256.New()
	say := func(texts ...string) {
		for _, s := range texts {
			binary.Write(h, binary.BigEndian, int64(len(s)))
			io.WriteString(h, s)
		}
	}
	say(tenant)
	for _, c := range changes {
		say(c.Type, string(c.Verb), c.ID, string(c.Doc), string(c.Old), c.Path, c.OldPath)
		binary.Write(h, binary.BigEndian, int64(len(c.Dirs)))
		for _, d := range c.Dirs {
			say(d.ID, d.Path)
		}
	}
	return h.Sum(nil)
}

func isPath(path string) bool { return strings.HasPrefix(path, "/") && storable(path, MaxPath) }

// storable is text that Postgres takes.
func storable(text string, most int) bool {
	return len(text) <= most && utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// isObject accepts null, too: there is no document.
func isObject(data []byte) bool {
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	return (bytes.HasPrefix(trimmed, []byte("{")) || bytes.HasPrefix(trimmed, []byte("null"))) && utf8.Valid(data) && json.Valid(data)
}

// Event is what a job of the change is told: verb, doc and old.
func (c Change) Event() json.RawMessage {
	whole := func(doc json.RawMessage) json.RawMessage {
		if len(doc) == 0 || !json.Valid(doc) {
			return nil
		}
		return doc
	}
	data, err := json.Marshal(struct {
		Verb Verb            `json:"verb"`
		Doc  json.RawMessage `json:"doc"`
		Old  json.RawMessage `json:"old,omitempty"`
	}{c.Verb, whole(c.Doc), whole(c.Old)})
	if err != nil { // cannot be: the documents were looked at
		return nil
	}
	return data
}
