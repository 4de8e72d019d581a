// Package acceptance deploys the dev release tarball in labs and uses the clusters as an operator would: it runs
// bin/lab and kubectl. It requires root and what `make release lab` builds; set ACCEPTANCE=1 when both are available.
package acceptance
