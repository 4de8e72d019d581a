package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestAPIAccessCommands checks that deploys of docs/api-access.md interpolate, and that its scripts have the options that it uses.
func TestAPIAccessCommands(t *testing.T) {
	option := regexp.MustCompile(`^--[a-z-]+$`)
	checked := map[string]int{}
	for _, block := range commandBlocks.FindAllStringSubmatch(read(t, "docs/api-access.md"), -1) {
		for _, line := range strings.Split(strings.ReplaceAll(block[1], "\\\n", " "), "\n") {
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			checked[words[0]]++
			switch {
			case words[0] == "bosh":
				checkBosh(t, words[1:])
			case strings.HasPrefix(words[0], "scripts/"):
				script := read(t, words[0])
				for _, word := range words[1:] {
					if option.MatchString(word) && !strings.Contains(script, "    "+word+") ") {
						t.Errorf("%s does not support %s", words[0], word)
					}
				}
			}
		}
	}
	if checked["bosh"] < 3 || checked["scripts/write-kubeconfig.sh"] < 4 {
		t.Errorf("too few commands found: %v", checked)
	}
}
