package cloudconfig

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"kubernetes-release/cloud/aws/awserr"
)

// entry is one line with a setting. The line of a section itself has an empty key.
type entry struct {
	line                     int
	section, subsection, key string
	value                    string
}

var sectionLine = regexp.MustCompile(`^\[\s*([A-Za-z0-9.-]+)\s*(?:"((?:[^"\\]|\\.)*)")?\s*\]\s*(?:[;#].*)?$`)

// scan splits the file, which has the syntax of git's configuration, into entries.
func scan(content string) (entries []entry, problems []string) {
	section, subsection := "", ""
	lines := strings.Split(strings.TrimPrefix(content, "\ufeff"), "\n")
	for i := 0; i < len(lines); i++ {
		number := i + 1
		line := strings.TrimSpace(lines[i])
		if line == "" || line[0] == ';' || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			match := sectionLine.FindStringSubmatch(line)
			if match == nil {
				problems = append(
					problems,
					fmt.Sprintf(
						"line %d: %q is not a section such as [Global] or [ServiceOverride \"1\"]",
						number,
						awserr.Clip(line),
					),
				)
				section = ""
				continue
			}
			section, subsection = match[1], match[2]
			entries = append(entries, entry{line: number, section: section, subsection: subsection})
			continue
		}
		key, raw, hasValue := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		for hasValue && strings.HasSuffix(raw, `\`) && i+1 < len(lines) { // continued on the next line
			i++
			raw = strings.TrimSuffix(raw, `\`) + strings.TrimSpace(lines[i])
		}
		value, err := unquote(strings.TrimSpace(raw))
		switch {
		case section == "":
			problems = append(
				problems,
				fmt.Sprintf("line %d: %q is before the first section, such as [Global]", number, awserr.Clip(line)),
			)
		case err != nil:
			problems = append(problems, fmt.Sprintf("line %d: %s: %v", number, awserr.Clip(key), err))
		default:
			if !hasValue {
				key, value = stripComment(key), "true" // a key without a value means true
			}
			entries = append(
				entries, entry{line: number, section: section, subsection: subsection, key: key, value: value},
			)
		}
	}
	return entries, problems
}

func stripComment(s string) string {
	if i := strings.IndexAny(s, ";#"); i >= 0 {
		s = s[:i]
	}
	return strings.TrimSpace(s)
}

// unquote resolves double quotes and escapes, and removes a comment at the end.
func unquote(raw string) (string, error) {
	var value strings.Builder
	quoted := false
	plainEnd := 0 // end of the value without unquoted spaces at its end
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c == '"':
			quoted = !quoted
			plainEnd = value.Len()
			continue
		case c == '\\':
			i++
			if i == len(raw) {
				return "", errors.New("ends in a backslash")
			}
			escaped, ok := map[byte]byte{'"': '"', '\\': '\\', 'n': '\n', 't': '\t', 'b': '\b'}[raw[i]]
			if !ok {
				return "", fmt.Errorf(`unknown escape \%c`, raw[i])
			}
			value.WriteByte(escaped)
			plainEnd = value.Len()
			continue
		case !quoted && (c == ';' || c == '#'):
			return value.String()[:plainEnd], nil
		}
		value.WriteByte(c)
		if quoted || c != ' ' && c != '\t' {
			plainEnd = value.Len()
		}
	}
	if quoted {
		return "", errors.New("a quote is not closed")
	}
	return value.String()[:plainEnd], nil
}
