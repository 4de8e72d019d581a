package addons

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kubernetes-release/internal/strictjson"
)

// Images maps the short name of an image in the release, such as "coredns", to its full reference with tag.
type Images map[string]string

const (
	placeholderStart = "${"
	imageStart       = "image:"
	placeholderEnd   = "}"
	// parenthesis and dollar are placeholders of single characters: BOSH takes (( for the beginning of a variable, and
	// ${ is one here.
	parenthesis = "(}"
	dollar      = "$}"
)

// LoadImages reads images.json of the release's package images: one JSON object of short name to full reference.
func LoadImages(path string) (Images, error) {
	var images Images
	if err := strictjson.ReadFile(path, &images); err != nil {
		return nil, fmt.Errorf("image references: %w; expected one JSON object of short name to reference", err)
	}
	for name, reference := range images {
		if reference == "" {
			return nil, fmt.Errorf("image references: %s: %q has an empty reference", path, name)
		}
	}
	return images, nil
}

// Expand replaces each ${image:NAME} in text with the image's reference, ${(} with ( and ${$} with $. The error for an
// unknown name lists the known ones.
func (i Images) Expand(text string) (string, error) {
	var expanded strings.Builder
	for {
		before, after, found := strings.Cut(text, placeholderStart)
		expanded.WriteString(before)
		switch {
		case !found:
			return expanded.String(), nil
		case strings.HasPrefix(after, parenthesis), strings.HasPrefix(after, dollar):
			expanded.WriteString(after[:1])
			text = after[len(dollar):]
		case strings.HasPrefix(after, imageStart):
			reference, rest, err := i.reference(after[len(imageStart):])
			if err != nil {
				return "", err
			}
			expanded.WriteString(reference)
			text = rest
		default:
			expanded.WriteString(placeholderStart)
			text = after
		}
	}
}

// reference returns that of the image whose name a text begins with, and the text after the placeholder.
func (i Images) reference(text string) (reference, rest string, err error) {
	name, rest, closed := strings.Cut(text, placeholderEnd)
	if !closed {
		return "", "", fmt.Errorf("%q lacks its closing %q", placeholderStart+imageStart+text, placeholderEnd)
	}
	reference, known := i[name]
	if !known {
		return "", "", fmt.Errorf(
			"%s%s%s%s is not an image of the release; known: %s", placeholderStart, imageStart, name, placeholderEnd,
			i.names(),
		)
	}
	return reference, rest, nil
}

func (i Images) names() string {
	if len(i) == 0 {
		return "none (no file with image references was given)"
	}
	return strings.Join(slices.Sorted(maps.Keys(i)), ", ")
}

// expandAll replaces placeholders in every string of a decoded JSON value.
func (i Images) expandAll(value any) (any, error) {
	switch v := value.(type) {
	case string:
		return i.Expand(v)
	case []any:
		for n := range v {
			expanded, err := i.expandAll(v[n])
			if err != nil {
				return nil, fmt.Errorf("[%d]%w", n, joinPath(err))
			}
			v[n] = expanded
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			expanded, err := i.expandAll(v[key])
			if err != nil {
				return nil, fmt.Errorf(".%s%w", key, joinPath(err))
			}
			v[key] = expanded
		}
	}
	return value, nil
}

// joinPath separates a path from the problem at its end with ": ".
func joinPath(err error) error {
	if strings.HasPrefix(err.Error(), ".") || strings.HasPrefix(err.Error(), "[") {
		return err
	}
	return fmt.Errorf(": %w", err)
}
