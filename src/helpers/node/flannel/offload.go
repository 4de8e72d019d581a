package flannel

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setChecksumOffload lets a device leave the checksums of packets to what sends them, the VM's interface in the end, or
// has the kernel compute them before. Segmentation of TCP is left to that only together with checksums; the kernel
// keeps what is wanted of it (netdev_fix_features in net/core/dev.c).
func setChecksumOffload(device string, on bool) error {
	value, word := uint32(0), "off"
	if on {
		value, word = 1, "on"
	}
	if _, err := ethtool(device, unix.ETHTOOL_STXCSUM, value); err != nil {
		return fmt.Errorf(
			"switch TX checksum offload of %s %s, as property tx_checksum_offload of job flannel says: %w",
			device, word, err,
		)
	}
	return nil
}

// ethtool runs a command that takes or returns one number, struct ethtool_value in linux/ethtool.h.
func ethtool(device string, command, value uint32) (uint32, error) {
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the rest of the union in struct ifreq
	}{}
	if copy(request.name[:unix.IFNAMSIZ-1], device) < len(device) {
		return 0, errors.New("its name is too long")
	}
	argument := struct{ command, value uint32 }{command, value}
	request.data = unsafe.Pointer(&argument)
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(socket) }()
	_, _, number := unix.Syscall(
		unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)),
	)
	if number != 0 {
		return 0, os.NewSyscallError("ioctl SIOCETHTOOL", number)
	}
	return argument.value, nil
}
