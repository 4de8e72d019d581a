package components

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"kubernetes-release/release/execute"
)

// shippedEnvironment are the environment variables of the go command that affect the content of all programs of the
// release. Those that are empty have their defaults, see mustBeUnset.
func shippedEnvironment() []string {
	return []string{"GOOS=linux", "GOARCH=amd64", "GOAMD64=v1", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off"}
}

// mustBeUnset returns an error if "go env -w" has set a variable that is empty in an environment: for the go command,
// an empty variable is one that is not set (cmd/go/internal/cfg/cfg.go: Getenv). No value of GOEXPERIMENT would do
// instead, because programs record it.
func mustBeUnset(environment []string, goCommand func(arguments ...string) *exec.Cmd) error {
	arguments := []string{"env", "-changed", "-json"}
	for _, variable := range environment {
		if name, empty := strings.CutSuffix(variable, "="); empty {
			arguments = append(arguments, name)
		}
	}
	output, err := execute.Output(goCommand(arguments...))
	if err != nil {
		return err
	}
	var set map[string]string
	if err := json.Unmarshal(output, &set); err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	if len(set) == 0 {
		return nil
	}
	names := strings.Join(slices.Sorted(maps.Keys(set)), " ")
	return fmt.Errorf("%s, set with go env -w, would change the program; go env -u %s removes it", names, names)
}
