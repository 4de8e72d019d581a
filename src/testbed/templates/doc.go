// Package templates tests the jobs' templates, the manifest and the ops-files. src/shared-templates contains the
// templates that several jobs link to.
//
// UPDATE_GOLDEN=1 go test ./templates writes the golden files. If KUBERNETES_BIN_DIR is set, the real binaries read the
// rendered files too.
package templates
