// Package templates tests what the release renders: the jobs' templates, the manifest and the ops-files. It holds no code
// of the release itself; shared/ holds the templates that several jobs have in common, as symbolic links.
//
// Golden files are written by UPDATE_GOLDEN=1 go test ./templates. Rendered files are also given to the real binaries
// where KUBERNETES_BIN_DIR names their folder.
package templates
