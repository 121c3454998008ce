package controller

import (
	"cmp"
	"strings"

	"carillon/backend/core/schema"
	"carillon/backend/core/trigger"
)

// worker finds the verb that a worker's name is, as trigger.FindVerb says, among those that are deployed.
func (c *catalog) worker(name string) (ref string, limits trigger.Limits, ok bool) {
	if strings.Contains(name, ".") {
		_, v, ok := c.find(name)
		return name, limitsOf(v), ok
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	ref, ok = c.resolve(name)
	if !ok {
		return "", limits, false
	}
	module, verb, _ := strings.Cut(ref, ".")
	return ref, limitsOf(c.modules[module].verbs[verb]), true
}

// resolve is for who holds the lock.
func (c *catalog) resolve(name string) (ref string, ok bool) {
	if e := c.modules[name]; e != nil {
		if _, ok := e.verbs[name]; ok { // most workers are called so
			return name + "." + name, true
		}
	}
	return trigger.FindVerb(name, func(yield func(string) bool) {
		for module, e := range c.modules {
			for verb := range e.verbs {
				if !yield(module + "." + verb) {
					return
				}
			}
		}
	})
}

// names are all names of the worker that a name is, its ref the last; none: it is no verb that is known now.
func (c *catalog) names(name string) (names []string) {
	ref, known := name, true
	if strings.Contains(name, ".") {
		_, _, known = c.find(name)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if !strings.Contains(name, ".") {
		ref, known = c.resolve(name)
	}
	if !known {
		return nil
	}
	return trigger.WorkerNames(ref, c.resolve)
}

// limitsOf are what a verb declares; what it leaves out is the API's.
func limitsOf(v schema.Verb) (l trigger.Limits) {
	l.Timeout = v.Timeout
	if v.Retry != nil {
		l.Executions, l.RetryDelay = v.Retry.Attempts, cmp.Or(v.Retry.Backoff, 0)
	}
	return l
}
