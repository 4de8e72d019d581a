// Package spelling finds the word that a misspelt one most likely stands for.
package spelling

import "strings"

// Nearest returns the known word that a misspelt one most likely stands for, or "" when none is close: more than a
// third of the letters, or all, would have to change. Case and the kind of separator (-, _, .) count as nothing.
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

// Hint is what an error adds about a misspelt word: " (did you mean WORD?)", or nothing when no known word is close.
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

// distance is how many bytes to insert, delete, replace, or swap with their neighbour turn a into b
// (the restricted Damerau-Levenshtein distance: swapped letters are the commonest slip of the keyboard).
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
