package trigger

import "time"

// ParseEvery reads the arguments of an @every: a duration of package time, of whole seconds and at least one. The error
// is a *Fault.
func ParseEvery(arguments string) (time.Duration, error) {
	d, err := time.ParseDuration(arguments)
	if err != nil {
		return 0, badArguments("%s: %s is no duration such as 90s or 1h30m", Every, quote(arguments))
	}
	if d < time.Second || d%time.Second != 0 {
		return 0, badArguments("%s: the duration %s is no whole number of seconds above zero", Every, quote(arguments))
	}
	return d, nil
}
