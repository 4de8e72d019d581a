// Package pipelines tests the Concourse pipelines in ci: their schema, that files, resources and variables exist and
// are used, that versions flow as `passed` says, and that each task's script uses what its task declares.
package pipelines
