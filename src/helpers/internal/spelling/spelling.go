// Package spelling suggests the word that was probably meant by a misspelled one.
package spelling

import "strings"

// Nearest returns the known word that was probably meant, or "" if none is close, that is, if more than a third of the
// letters, or all of them, would have to change. It ignores case and the kind of separator (-, _, .).
func Nearest(word string, known []string) string {
	wanted := plain(word)
	best, bestDistance := "", min(len(wanted)/3+2, len(wanted))
	for _, candidate := range known {
		if d := distance(wanted, plain(candidate)); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// Hint returns " (did you mean WORD?)" for an error about a misspelled word, or "" if no known word is close.
func Hint(word string, known []string) string {
	near := Nearest(word, known)
	if near == "" {
		return ""
	}
	return " (did you mean " + near + "?)"
}

func plain(word string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(word))
}

// distance returns how many bytes must be inserted, deleted, replaced, or swapped with the next one to turn a into b.
// This is the restricted Damerau-Levenshtein distance; swapped letters are the most common typing error.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
