// Package csisanity has the tests of csi-sanity, with which the Kubernetes project tests drivers against the
// specification of the Container Storage Interface.
package csisanity
