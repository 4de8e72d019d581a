// Package preflight tests the preflight with the simulator of AWS.
package preflight
