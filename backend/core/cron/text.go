package cron

import (
	"strings"
	"unicode/utf8"
)

// SafeText makes a text from outside fit for SQL: valid UTF-8, no NUL, at most MaxError bytes.
func SafeText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) <= MaxError {
		return s
	}
	const mark = " [cut]"
	cut := MaxError - len(mark)
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}
