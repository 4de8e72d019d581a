package boshrelease

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/cppforlife/go-semi-semantic/version"

	"kubernetes-release/release/execute"
)

// devVersion is the version of a dev release: the last final version (a git tag such as v1.2.0; 0 before the first),
// then "dev", the number of commits, so that later releases sort after earlier ones, and the start of the content's
// digest, so that different content never has the same version.
func devVersion(ctx context.Context, root, content string) (version.Version, error) {
	base, commits := "0", "0"
	// Without git or its history, as in a source archive, the version depends on the content alone.
	if tag, err := git(ctx, root, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"); err == nil {
		base = strings.TrimPrefix(tag, "v")
	}
	if count, err := git(ctx, root, "rev-list", "--count", "HEAD"); err == nil {
		commits = count
	}
	// The letter prevents that a digest without letters is parsed as a number.
	text := fmt.Sprintf("%s+dev.%s.c%s", base, commits, content[:12])
	number, err := version.NewVersionFromString(text)
	if err != nil {
		return version.Version{}, fmt.Errorf(
			"dev version %q (from the last tag that git describe finds): %w", text, err,
		)
	}
	return number, nil
}

// git runs git in a repository and returns its output without the final newline.
func git(ctx context.Context, root string, arguments ...string) (string, error) {
	output, err := execute.Output(exec.CommandContext(ctx, "git", append([]string{"-C", root}, arguments...)...))
	return strings.TrimSpace(string(output)), err
}
