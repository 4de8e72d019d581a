package addons

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Images maps the short name of an image in the release, such as "coredns", to its full reference with the version.
type Images map[string]string

const (
	placeholderStart = "${image:"
	placeholderEnd   = "}"
)

// LoadImages reads the file that the release's images package has: one JSON object of short name to full reference.
func LoadImages(path string) (Images, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the names of images: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	var images Images
	if err := decoder.Decode(&images); err != nil {
		return nil, fmt.Errorf("names of images in %s: %w; it must be one JSON object of short name to reference", path, err)
	}
	for name, reference := range images {
		if reference == "" {
			return nil, fmt.Errorf("names of images in %s: %q has an empty reference", path, name)
		}
	}
	return images, nil
}

// Expand replaces each ${image:NAME} in text by the image's reference. A name that is not known is an error that lists
// the known ones.
func (i Images) Expand(text string) (string, error) {
	var expanded strings.Builder
	for {
		before, after, found := strings.Cut(text, placeholderStart)
		expanded.WriteString(before)
		if !found {
			return expanded.String(), nil
		}
		name, rest, closed := strings.Cut(after, placeholderEnd)
		if !closed {
			return "", fmt.Errorf("%q lacks its closing %q", placeholderStart+after, placeholderEnd)
		}
		reference, known := i[name]
		if !known {
			return "", fmt.Errorf("%s%s%s names no image of the release; known: %s", placeholderStart, name, placeholderEnd, i.names())
		}
		expanded.WriteString(reference)
		text = rest
	}
}

func (i Images) names() string {
	if len(i) == 0 {
		return "none (no file with image names was given)"
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

// joinPath puts ": " between a path and the problem at its end, and nothing between two parts of the path.
func joinPath(err error) error {
	if strings.HasPrefix(err.Error(), ".") || strings.HasPrefix(err.Error(), "[") {
		return err
	}
	return fmt.Errorf(": %w", err)
}
