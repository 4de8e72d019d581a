// Package printable makes text of others safe for a terminal: messages of nodes, pods and clouds, which operators see
// on their screens.
package printable

import (
	"strconv"
	"strings"
	"unicode"
)

// Text returns a text in which characters that a terminal does not show, but obeys, are written as in Go: sequences of
// ESC could clear the screen, and with it what was reported before, set its title, or fill the clipboard; a carriage
// return writes over the line, and marks of direction turn it around. Lines and tabs stay.
func Text(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var result strings.Builder
	for _, r := range text {
		if hidden(r) {
			result.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		result.WriteRune(r)
	}
	return result.String()
}

func hidden(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
