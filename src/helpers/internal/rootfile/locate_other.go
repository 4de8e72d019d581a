//go:build !linux

package rootfile

import "golang.org/x/sys/unix"

// locate lets programs build where operators work, such as cloud-preflight on macOS. Only VMs run what needs this
// package.
const locate = unix.O_RDONLY
