// Package fixes has what resolves findings. Fixes are complete command lines: a test parses each with bash and with the
// AWS CLI, and runs it. A value that an earlier line determines, or that only the operator knows, is a shell variable.
package fixes

import (
	"fmt"
	"regexp"
	"strings"

	"al.essio.dev/pkg/shellescape"

	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/preflight"
)

// Word returns a value for a command line, or the shell variable for a value that is unknown.
func Word(value, variable string) string {
	if value == "" {
		return Expand(variable)
	}
	return value
}

// Expand is the value of a shell variable, as one word.
func Expand(variable string) string { return `"$` + variable + `"` }

// expansion is a word that ends with the value of a shell variable, and of which nothing else needs quoting.
var expansion = regexp.MustCompile(`^[\w=,:.-]*"\$[a-z0-9_]+"$`)

// Line is a command line of the given words, which are quoted where that is necessary.
func Line(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; !expansion.MatchString(w) {
			quoted[i] = shellescape.Quote(w)
		}
	}
	return strings.Join(quoted, " ")
}

// Assign sets a shell variable to what a command prints.
func Assign(variable, command string) string { return variable + "=$(" + command + ")" }

// AWS is a command line of the AWS CLI. IAM's commands have a region too, which selects the partition.
func AWS(f *facts.Facts, service, operation string, words ...string) string {
	return Line(append([]string{"aws", service, operation, "--region", Word(f.Region(), "region")}, words...)...)
}

// Query is a command that prints one value of the answer.
func Query(f *facts.Facts, path, service, operation string, words ...string) string {
	return AWS(f, service, operation, append(words, "--query", path, "--output", "text")...)
}

// placeholders are the values of shell variables that only the operator knows.
var placeholders = map[string]string{
	"region":   "REGION",
	"cidr":     "CIDR_BLOCK",
	"vpc":      "VPC_ID",
	"subnet":   "SUBNET_ID",
	"table":    "ROUTE_TABLE_ID",
	"group":    "SECURITY_GROUP_ID",
	"key":      "TAG_KEY",
	"instance": "INSTANCE_ID",
	"nat":      "NAT_GATEWAY_ID",

	"partition": "PARTITION",
	"account":   "ACCOUNT_ID",
}

var (
	usedVariable = regexp.MustCompile(`"\$([a-z]+)[a-z0-9_]*"`)
	setVariable  = regexp.MustCompile(`(?:^|[ {])([a-z][a-z0-9_]*)=`)
)

// ByCommand is a fix by commands. Lines that set placeholders come first, and the text says so.
func ByCommand(text string, lines ...string) preflight.Fix {
	var unknown []string
	set := map[string]bool{}
	for _, l := range lines {
		for _, use := range usedVariable.FindAllStringSubmatch(l, -1) {
			name := strings.Trim(use[0], `"$`)
			if value := placeholders[use[1]]; value != "" && !set[name] {
				set[name] = true
				unknown = append(unknown, name+"="+value)
			}
		}
		for _, match := range setVariable.FindAllStringSubmatch(l, -1) {
			set[match[1]] = true
		}
	}
	switch len(unknown) {
	case 0:
	case 1:
		text += "; first replace the value in capitals"
	default:
		text += "; first replace the values in capitals"
	}
	return preflight.Fix{Text: text, Commands: append(unknown, lines...)}
}

// ByHand is a fix that no command makes, such as a change of the manifest.
func ByHand(format string, args ...any) preflight.Fix {
	return preflight.Fix{Text: fmt.Sprintf(format, args...)}
}

// InExtension is the setting in the cloud config's VM extension for machines of this role.
func InExtension(f *facts.Facts, properties string) preflight.Fix {
	return ByHand(
		"also, so that recreated VMs have it, in the cloud config's vm_extension kubernetes-%s: cloud_properties: {%s}",
		f.Request.Role, properties,
	)
}

// CheckOff is the way to accept what a check reports.
func CheckOff(when, id string) preflight.Fix {
	return ByHand("or, %s, set the job cloud-provider's property preflight.checks: {%s: off}", when, id)
}
