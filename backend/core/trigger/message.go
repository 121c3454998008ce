package trigger

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// The names under which a request may give a message, the preferred one first. Of a trigger "arguments" are its
// schedule.
const (
	inOptions = "options.arguments"
	inMessage = "message"
	inJob     = "arguments"
	inWorker  = "worker_arguments"
)

// JobMessage finds the message of a job among its attributes, or the top of a flat body: message, arguments,
// worker_arguments or options.arguments. Several must be the same JSON value; null is as good as absent. Nil: there is
// none. Pointers of faults begin with at, e.g. /data/attributes. The error is a *Fault.
func JobMessage(attributes map[string]json.RawMessage, at string) (json.RawMessage, error) {
	return findMessage(attributes, at, inMessage, inJob, inWorker, inOptions)
}

// TriggerMessage is the same of a trigger, without arguments.
func TriggerMessage(attributes map[string]json.RawMessage, at string) (json.RawMessage, error) {
	return findMessage(attributes, at, inMessage, inWorker, inOptions)
}

func findMessage(attributes map[string]json.RawMessage, at string, names ...string) (message json.RawMessage, err error) {
	var first string
	for _, name := range names {
		value := attributes[name]
		if name == inOptions {
			var options map[string]json.RawMessage
			if json.Unmarshal(attributes["options"], &options) == nil { // otherwise ReadOptions refuses them
				value = options["arguments"]
			}
		}
		value = present(value)
		switch {
		case value == nil:
		case message == nil:
			message, first = value, name
		case !SameJSON(message, value):
			return nil, &Fault{
				Pointer: at + "/" + strings.ReplaceAll(name, ".", "/"), Title: InvalidAttribute,
				Detail: name + " and " + first + " are names of the same thing, and differ",
			}
		}
	}
	return message, nil
}

// DecodeMessage gives a stored message as a worker reads it. The legacy form {"Data": base64, "Type": "json"} is
// unpacked; whatever else it may be is left alone.
func DecodeMessage(stored json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if !bytes.HasPrefix(bytes.TrimSpace(stored), []byte("{")) || json.Unmarshal(stored, &fields) != nil || len(fields) != 2 {
		return stored
	}
	var kind string
	var data []byte
	if json.Unmarshal(fields["Type"], &kind) != nil || kind != "json" || json.Unmarshal(fields["Data"], &data) != nil {
		return stored
	}
	if data = bytes.TrimSpace(data); !json.Valid(data) {
		return stored
	}
	return data
}

// NoMessage is the error of a job that needs a message and has none.
const NoMessage = "jobs: message is nil"

// hopeless errors of a konnector need its user; more may follow after a dot.
var hopeless = []string{"LOGIN_FAILED", "USER_ACTION_NEEDED"}

// Hopeless says that a failed execution is not to be repeated, by its error: only somebody else can mend it.
func Hopeless(text string) bool {
	return text == NoMessage || slices.ContainsFunc(hopeless, func(code string) bool {
		rest, ok := strings.CutPrefix(text, code)
		return ok && (rest == "" || rest[0] == '.')
	})
}
