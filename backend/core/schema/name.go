package schema

import "strings"

// bareName reports whether a field's name needs no quotes in the text form.
func bareName(s string) bool {
	for i, c := range []byte(s) {
		if !isLetter(c) && c != '_' && (i == 0 || !isDigit(c) && c != '-') {
			return false
		}
	}
	return s != ""
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

// Nearest returns the candidate that s was most likely meant to be, "" when none is near: one that differs in case alone,
// or by at most two letters and less than half of its own.
func Nearest(s string, candidates []string) string {
	best, bestDistance := "", 3
	for _, c := range candidates {
		if strings.EqualFold(s, c) {
			return c
		}
		if len(s) > len(c)+2 {
			continue
		}
		if d := distance(strings.ToLower(s), strings.ToLower(c)); d < bestDistance && 2*d < len(c) {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete, replace or swap with the next one to get from a to b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
