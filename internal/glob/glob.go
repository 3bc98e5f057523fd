// Package glob has the one kind of pattern that configuration knows: `*` stands for any run of
// characters, also an empty one, `?` for one character, everything else for itself.
package glob

// Hex, in a pattern, is one digit of 0-9a-f. It is a control character, so that no pattern
// that a person writes has it.
const Hex = '\x01'

// one reports whether a character other than * matches another, either of a pattern.
func one(x, y byte) bool {
	switch {
	case x == y, x == '?', y == '?':
		return true
	case x == Hex:
		return isHex(y)
	}
	return y == Hex && isHex(x)
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

// Match reports whether a string matches a pattern; it keeps one point to go back to, so
// that its time is at most the product of both lengths.
func Match(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i] || pattern[p] == Hex && isHex(s[i])):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// Intersect reports whether some string matches both patterns.
func Intersect(a, b string) bool {
	// Most pairs differ before their first star, or behind their last: a thousand rules make
	// half a million pairs.
	n := min(len(a), len(b))
	for i := 0; i < n && a[i] != '*' && b[i] != '*'; i++ {
		if !one(a[i], b[i]) {
			return false
		}
	}
	for i := 1; i <= n && a[len(a)-i] != '*' && b[len(b)-i] != '*'; i++ {
		if !one(a[len(a)-i], b[len(b)-i]) {
			return false
		}
	}
	// reach[j] holds, after the first i characters of a, whether the first j of b can have
	// consumed the same string.
	reach := make([]bool, len(b)+1)
	next := make([]bool, len(b)+1)
	reach[0] = true
	for j := 1; j <= len(b); j++ {
		reach[j] = reach[j-1] && b[j-1] == '*'
	}
	for i := 1; i <= len(a); i++ {
		next[0] = reach[0] && a[i-1] == '*'
		for j := 1; j <= len(b); j++ {
			x, y := a[i-1], b[j-1]
			if x == '*' || y == '*' {
				// A star stands for nothing, or takes what the other side has there.
				next[j] = reach[j] || next[j-1] || reach[j-1]
				continue
			}
			next[j] = reach[j-1] && one(x, y)
		}
		reach, next = next, reach
	}
	return reach[len(b)]
}
