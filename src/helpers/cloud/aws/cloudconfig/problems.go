package cloudconfig

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/warnings.v0"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/internal/spelling"
)

// problems are those of one file.
type problems struct {
	lines []string
	list  []string
}

func newProblems(content []byte) *problems {
	return &problems{lines: strings.Split(string(content), "\n")}
}

func (p *problems) add(format string, args ...any) {
	if problem := fmt.Sprintf(format, args...); !slices.Contains(p.list, problem) {
		p.list = append(p.list, problem)
	}
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return errors.New(strings.Join(p.list, "; "))
}

// ignored matches what gcfg says of what the cloud controller ignores (loc and extraData in errors.go of gcfg).
var ignored = regexp.MustCompile(
	`(?s)^can't store data at section "(.*?)"(?:, subsection ".*?")?(?:, variable "(.*)")?$`,
)

// addReading adds what gcfg could not store, which the cloud controller ignores, and what it fails on.
func (p *problems) addReading(err error) {
	if err == nil {
		return
	}
	fatal := err
	var list warnings.List
	if errors.As(err, &list) {
		fatal = list.Fatal
		for _, w := range list.Warnings {
			if match := ignored.FindStringSubmatch(w.Error()); match != nil {
				p.addIgnored(match[1], match[2])
			} else {
				p.add("the cloud controller would silently ignore a part: %s", awserr.ClipLong(w.Error()))
			}
		}
	}
	if fatal == nil {
		return
	}
	hint := ""
	if strings.Contains(fatal.Error(), "parse bool") {
		hint = "; allowed are true, yes, on, 1, false, no, off and 0"
	}
	p.add("the cloud controller does not start with it: %s%s", awserr.ClipLong(fatal.Error()), hint)
}

func (p *problems) addIgnored(section, key string) {
	var keys reflect.Type
	switch {
	case strings.EqualFold(section, "Global") && key == "":
		p.add(
			"%ssection [Global] has a name in quotes, and the cloud controller would silently ignore it",
			p.lineOf(section, ""),
		)
		return
	case strings.EqualFold(section, "Global"):
		keys = reflect.TypeFor[global]()
	case strings.EqualFold(section, "ServiceOverride"):
		keys = reflect.TypeFor[override]()
	default:
		p.add(
			"%ssection [%s] is unknown; allowed are [Global] and [ServiceOverride \"n\"]", p.lineOf(section, ""),
			awserr.Clip(section),
		)
		return
	}
	p.add(
		"%skey %q in [%s] is unknown, and the cloud controller would silently ignore it%s", p.lineOf(section, key),
		awserr.Clip(key), section, nearestKey(key, keys),
	)
}

// addEmpty adds keys with a sign of equality and nothing after it, for which a value was probably forgotten.
func (p *problems) addEmpty() {
	for i, line := range p.lines {
		if match := withoutValue.FindStringSubmatch(line); match != nil {
			p.add("line %d: %s has no value", i+1, match[1])
		}
	}
}

var withoutValue = regexp.MustCompile(`^\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*(?:[;#].*)?$`)

// addValues adds the values of a section that are not of their kind.
func (p *problems) addValues(section string, fields reflect.Value) {
	for i := range fields.NumField() {
		name, value := fields.Type().Field(i).Name, fields.Field(i)
		kind := kinds[name]
		if kind == nil || value.IsZero() {
			continue
		}
		texts := []string{fmt.Sprint(value)}
		if list, ok := value.Interface().([]string); ok {
			texts = list
		}
		for _, text := range texts {
			if err := kind(text); err != nil {
				p.add("%s%s: %q %v", p.lineOf(section, name), name, awserr.Clip(text), err)
			}
		}
	}
}

var (
	sectionLine = regexp.MustCompile(`^\s*\[\s*([A-Za-z][A-Za-z0-9-]*)`)
	keyLine     = regexp.MustCompile(`^\s*([A-Za-z][A-Za-z0-9-]*)`)
)

// lineOf is where a key is, or a section if the key is empty, as the start of a message. gcfg does not tell. It is
// empty for what is not found.
func (p *problems) lineOf(section, key string) string {
	inside := false
	for i, line := range p.lines {
		if match := sectionLine.FindStringSubmatch(line); match != nil {
			inside = strings.EqualFold(match[1], section)
			if inside && key == "" {
				return fmt.Sprintf("line %d: ", i+1)
			}
			continue
		}
		if match := keyLine.FindStringSubmatch(line); inside && key != "" && match != nil &&
			strings.EqualFold(match[1], key) {
			return fmt.Sprintf("line %d: ", i+1)
		}
	}
	return ""
}

func nearestKey(name string, section reflect.Type) string {
	var names []string
	for i := range section.NumField() {
		names = append(names, section.Field(i).Name)
	}
	slices.Sort(names)
	if near := spelling.Nearest(name, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; known are " + strings.Join(names, ", ")
}
