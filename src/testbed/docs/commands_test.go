package docs

import (
	"regexp"
	"strings"
	"testing"
)

var (
	yamlBlocks = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	// fileName is the comment at the top of a block that is the content of a file.
	fileName = regexp.MustCompile(`\A# ([a-z0-9-]+\.yml)\n`)
	option   = regexp.MustCompile(`^--[a-z-]+$`)
)

// TestCommandsOfDocuments checks that deploys which documents show interpolate with all their variables, and that
// scripts have the options that documents use.
func TestCommandsOfDocuments(t *testing.T) {
	checked := map[string]int{}
	for _, document := range documents(t) {
		if !strings.HasPrefix(document, "docs/") || strings.HasPrefix(document, "docs/decisions/") {
			continue
		}
		text := read(t, document)
		shown := map[string]string{}
		for _, block := range yamlBlocks.FindAllStringSubmatch(text, -1) {
			if name := fileName.FindStringSubmatch(block[1]); name != nil {
				shown[name[1]] = block[1]
			}
		}
		for _, block := range commandBlocks.FindAllStringSubmatch(text, -1) {
			for _, line := range strings.Split(strings.ReplaceAll(block[1], "\\\n", " "), "\n") {
				words := strings.Fields(line)
				if len(words) == 0 {
					continue
				}
				checked[words[0]]++
				if strings.Contains(line, "/tmp/") {
					t.Errorf("%s: %s: others can read files in /tmp, and create them first", document, line)
				}
				switch {
				case words[0] == "bosh":
					t.Run(document+" "+line, func(t *testing.T) { checkBosh(t, words[1:], shown) })
				case strings.HasPrefix(words[0], "scripts/"):
					script := read(t, words[0])
					for _, word := range words[1:] {
						if option.MatchString(word) && !strings.Contains(script, word+" ") {
							t.Errorf("%s: %s does not support %s", document, words[0], word)
						}
					}
				}
			}
		}
	}
	if checked["bosh"] < 8 || checked["scripts/write-kubeconfig.sh"] < 4 {
		t.Errorf("too few commands found: %v", checked)
	}
}
