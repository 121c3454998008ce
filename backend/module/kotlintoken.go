package module

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// token kinds of Kotlin, as far as annotations and function heads need them.
type kotlinKind int

const (
	kotlinEnd    kotlinKind = iota
	kotlinWord              // an identifier or keyword, without its backticks
	kotlinString            // a string or character literal, without its quotes
	kotlinMark              // one character of punctuation
)

// kotlinToken is one token with its place. Offset and length are those of its text, inside quotes and backticks.
type kotlinToken struct {
	kind   kotlinKind
	text   string
	offset int
	plain  bool // a string without templates and escapes
	quoted bool // a word in backticks, which is never a keyword
}

// kotlinTokens splits a file. Comments are left out; text that is no Kotlin gives marks, never an error: the compiler is the
// one to complain.
func kotlinTokens(src string) []kotlinToken {
	var tokens []kotlinToken
	for i := 0; i < len(src); {
		rest := src[i:]
		c, size := utf8.DecodeRuneInString(rest)
		switch {
		case unicode.IsSpace(c):
			i += size
		case strings.HasPrefix(rest, "//"), i == 0 && strings.HasPrefix(rest, "#!"):
			i += lineLength(rest)
		case strings.HasPrefix(rest, "/*"):
			i += blockComment(rest)
		case c == '"':
			text, start, length, plain := kotlinText(rest)
			tokens = append(tokens, kotlinToken{kind: kotlinString, text: text, offset: i + start, plain: plain})
			i += length
		case c == '\'':
			length := character(rest)
			tokens = append(tokens, kotlinToken{kind: kotlinString, text: rest[:length], offset: i})
			i += length
		case c == '`':
			end := strings.IndexAny(rest[1:], "`\n")
			if end < 0 || rest[1+end] == '\n' {
				i++
				continue
			}
			tokens = append(tokens, kotlinToken{kind: kotlinWord, text: rest[1 : 1+end], offset: i + 1, quoted: true})
			i += end + 2
		case isWord(c):
			length := strings.IndexFunc(rest, func(c rune) bool { return !isWord(c) })
			if length < 0 {
				length = len(rest)
			}
			tokens = append(tokens, kotlinToken{kind: kotlinWord, text: rest[:length], offset: i})
			i += length
		default:
			tokens = append(tokens, kotlinToken{kind: kotlinMark, text: rest[:size], offset: i})
			i += size
		}
	}
	return tokens
}

func isWord(c rune) bool { return c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c) }

func lineLength(s string) int {
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		return i
	}
	return len(s)
}

// blockComment is the length of a comment that may hold further ones, as Kotlin's do.
func blockComment(s string) int {
	depth := 0
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "/*"):
			depth++
			i += 2
		case strings.HasPrefix(s[i:], "*/"):
			depth--
			i += 2
			if depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return len(s)
}

// kotlinText reads a string literal at the start of s: its text, where that starts, and the whole length.
func kotlinText(s string) (text string, start, length int, plain bool) {
	if strings.HasPrefix(s, `"""`) {
		end := strings.Index(s[3:], `"""`)
		if end < 0 {
			return s[3:], 3, len(s), false
		}
		for strings.HasPrefix(s[3+end+1:], `"""`) { // further quotes belong to the text
			end++
		}
		text = s[3 : 3+end]
		return text, 3, end + 6, !strings.Contains(text, "$")
	}
	plain = true
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return s[1:i], 1, i + 1, plain
		case '\n': // not closed: the rest is read as code again
			return s[1:i], 1, i, false
		case '\\':
			plain = false
			i++
		case '$':
			plain = false
			if strings.HasPrefix(s[i:], "${") {
				i += template(s[i:]) - 1
			}
		}
	}
	return s[1:], 1, len(s), false
}

// template is the length of ${..} at the start of s, with the braces and strings inside it.
func template(s string) int {
	depth := 0
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		case '\n':
			return i
		case '"':
			if end := strings.IndexByte(s[i+1:], '"'); end >= 0 {
				i += end + 1
			}
		}
	}
	return len(s)
}

// character is the length of a character literal.
func character(s string) int {
	for i := 1; i < len(s) && s[i] != '\n'; i++ {
		switch s[i] {
		case '\\':
			i++
		case '\'':
			return i + 1
		}
	}
	return 1
}

func describe(t kotlinToken) string {
	if t.kind == kotlinWord && len(t.text) < 40 {
		return t.text
	}
	return "this"
}
