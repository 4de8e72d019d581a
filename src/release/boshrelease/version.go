package boshrelease

import (
	"context"
	"fmt"
	"strings"

	"github.com/cppforlife/go-semi-semantic/version"
)

// devVersion is the version of a dev release: the last final version that git knows (a tag such as v1.2.0; 0 before
// the first), then "dev", the number of commits since the beginning, so that later releases sort after earlier
// ones, and the start of the content's digest, so that different content is never the same version.
func devVersion(ctx context.Context, root, content string) (version.Version, error) {
	base, commits := "0", "0"
	// Without git or its history, as in a source archive, the content alone makes the version.
	if text, err := run(ctx, root, nil, "git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"); err == nil {
		base = strings.TrimPrefix(strings.TrimSpace(text), "v")
	}
	if text, err := run(ctx, root, nil, "git", "rev-list", "--count", "HEAD"); err == nil {
		commits = strings.TrimSpace(text)
	}
	// The letter keeps a digest of digits only from being read as a number.
	text := fmt.Sprintf("%s+dev.%s.c%s", base, commits, content[:12])
	number, err := version.NewVersionFromString(text)
	if err != nil {
		return version.Version{}, fmt.Errorf("dev version %q (from the last tag that git describe finds): %w", text, err)
	}
	return number, nil
}
