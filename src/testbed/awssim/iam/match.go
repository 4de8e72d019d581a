package iam

import (
	"strings"
)

// matchAny matches wildcards; actions are case-insensitive, ARNs are not. A request for "*" matches only a pattern that
// matches everything.
func matchAny(patterns []string, value string, fold bool) bool {
	for _, pattern := range patterns {
		v := value
		if fold {
			pattern, v = strings.ToLower(pattern), strings.ToLower(value)
		}
		if Match(pattern, v) {
			return true
		}
	}
	return false
}

// Match matches s against a pattern in which * stands for any characters and ? for one, as in AWS's policies and
// filters.
func Match(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
