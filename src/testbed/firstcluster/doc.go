// Package firstcluster runs the commands of docs/first-cluster.md, all of them and nothing else, in the order of the
// page.
package firstcluster
