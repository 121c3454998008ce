package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// What the parser leaves to be said about flags: negative numbers, and secrets that come from several places.

// joinNegatives lets a negative number stand behind its flag as any other value: "--limit -1" is "--limit=-1". Whether it
// is accepted is said afterwards, in better words than "unknown flag -1".
func joinNegatives(args []string) []string {
	var joined []string
	for i, arg := range args {
		if arg == "--" {
			return append(joined, args[i:]...)
		}
		if n := len(joined); n > 0 && isNegative(arg) && strings.HasPrefix(joined[n-1], "--") && !strings.Contains(joined[n-1], "=") {
			joined[n-1] += "=" + arg
			continue
		} else if n > 0 && isNegative(arg) && len(joined[n-1]) == 2 && joined[n-1][0] == '-' && !isNegative(joined[n-1]) {
			joined[n-1] += arg // -n -1
			continue
		}
		joined = append(joined, arg)
	}
	return joined
}

// isNegative reports whether a word reads like -1, -5s or -.5.
func isNegative(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && (arg[1] >= '0' && arg[1] <= '9' || arg[1] == '.')
}

// mayBeNegative are the flags that accept it; all others with numbers and lengths of time do not.
var mayBeNegative = []string{"test-clock-skew"}

// checkFlags refuses negative numbers, and settles which of a secret and its file counts: what stands on the command line
// before what the environment says.
func checkFlags(kctx *kong.Context) error {
	given := map[string]bool{}
	for _, p := range kctx.Path {
		if p.Flag != nil {
			given[p.Flag.Name] = true
		}
	}
	for _, f := range kctx.Flags() {
		if negative(f.Target) && !slices.Contains(mayBeNegative, f.Name) {
			return usage{fmt.Errorf("--%s %v: it cannot be negative", f.Name, reflect.Indirect(f.Target).Interface())}
		}
		secret, isFile := strings.CutSuffix(f.Name, "-file")
		if !isFile || !given[f.Name] {
			continue
		}
		for _, other := range kctx.Flags() {
			switch {
			case other.Name != secret:
			case given[secret]:
				return usage{fmt.Errorf("--%s and --%s exclude each other", secret, f.Name)}
			default:
				other.Target.SetZero()
			}
		}
	}
	return nil
}

func negative(v reflect.Value) bool {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return false
		}
		v = v.Elem()
	}
	return v.CanInt() && v.Int() < 0
}
