// Package templates tests what the release renders: the jobs' templates, the manifest and the ops-files. It holds no code
// of the release itself; src/shared-templates holds the templates that several jobs link to.
//
// Golden files are written by UPDATE_GOLDEN=1 go test ./test/templates. Rendered files are also given to the real binaries
// where KUBERNETES_BIN_DIR names their folder.
package templates
