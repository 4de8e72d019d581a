package bpm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// capabilities maps the names that bpm.yml uses to Linux capabilities.
var capabilities = map[string]uintptr{
	"CHOWN":            unix.CAP_CHOWN,
	"DAC_OVERRIDE":     unix.CAP_DAC_OVERRIDE,
	"DAC_READ_SEARCH":  unix.CAP_DAC_READ_SEARCH,
	"FOWNER":           unix.CAP_FOWNER,
	"FSETID":           unix.CAP_FSETID,
	"KILL":             unix.CAP_KILL,
	"SETGID":           unix.CAP_SETGID,
	"SETUID":           unix.CAP_SETUID,
	"SETPCAP":          unix.CAP_SETPCAP,
	"LINUX_IMMUTABLE":  unix.CAP_LINUX_IMMUTABLE,
	"NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE,
	"NET_BROADCAST":    unix.CAP_NET_BROADCAST,
	"NET_ADMIN":        unix.CAP_NET_ADMIN,
	"NET_RAW":          unix.CAP_NET_RAW,
	"IPC_LOCK":         unix.CAP_IPC_LOCK,
	"IPC_OWNER":        unix.CAP_IPC_OWNER,
	"SYS_MODULE":       unix.CAP_SYS_MODULE,
	"SYS_RAWIO":        unix.CAP_SYS_RAWIO,
	"SYS_CHROOT":       unix.CAP_SYS_CHROOT,
	"SYS_PTRACE":       unix.CAP_SYS_PTRACE,
	"SYS_PACCT":        unix.CAP_SYS_PACCT,
	"SYS_ADMIN":        unix.CAP_SYS_ADMIN,
	"SYS_BOOT":         unix.CAP_SYS_BOOT,
	"SYS_NICE":         unix.CAP_SYS_NICE,
	"SYS_RESOURCE":     unix.CAP_SYS_RESOURCE,
	"SYS_TIME":         unix.CAP_SYS_TIME,
	"SYS_TTY_CONFIG":   unix.CAP_SYS_TTY_CONFIG,
	"MKNOD":            unix.CAP_MKNOD,
	"LEASE":            unix.CAP_LEASE,
	"AUDIT_WRITE":      unix.CAP_AUDIT_WRITE,
	"AUDIT_CONTROL":    unix.CAP_AUDIT_CONTROL,
	"SETFCAP":          unix.CAP_SETFCAP,
	"MAC_OVERRIDE":     unix.CAP_MAC_OVERRIDE,
	"MAC_ADMIN":        unix.CAP_MAC_ADMIN,
	"SYSLOG":           unix.CAP_SYSLOG,
	"WAKE_ALARM":       unix.CAP_WAKE_ALARM,
	"BLOCK_SUSPEND":    unix.CAP_BLOCK_SUSPEND,
	"AUDIT_READ":       unix.CAP_AUDIT_READ,
}

// becomeUser switches the calling thread, and so the program that it then executes, to a user with exactly the listed
// capabilities. It uses raw system calls because those of package syscall change all threads of the process.
func becomeUser(uid, gid int, list []string) error {
	keep := make(map[uintptr]bool, len(list))
	for _, name := range list {
		keep[capabilities[name]] = true
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if keep[c] {
			continue
		}
		// EINVAL: the kernel does not have this capability.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("dropping capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keeping capabilities: %w", err)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("dropping groups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); errno != 0 {
		return fmt.Errorf("becoming group %d: %w", gid, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return fmt.Errorf("becoming user %d: %w", uid, errno)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	for c := range keep {
		bit := uint32(1) << (c % 32)
		set := &sets[c/32]
		set.Permitted, set.Effective, set.Inheritable = set.Permitted|bit, set.Effective|bit, set.Inheritable|bit
	}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("setting capabilities %v: %w", list, err)
	}
	for c := range keep {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0); err != nil {
			return fmt.Errorf("raising ambient capability %d: %w", c, err)
		}
	}
	return nil
}
