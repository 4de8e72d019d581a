package faults

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"kubernetes-release/internal/poll"
)

// The VMs of a lab share the machine's clock, and time namespaces have no real-time clock of their own. But a process
// asks for the time in the kernel's shared object that is mapped into it (vdso(7)), and its copy can be changed: then
// that process alone has another time. Timers of the kernel, and what the kernel writes to files, are not affected.

// clock makes the clock of some processes differ from the machine's, of new ones too, until stop.
type clock struct {
	mutex  sync.Mutex
	offset time.Duration
	pids   func() ([]int, error)
	stop   func() error
}

// clockInterval is how soon a new process has the VM's time.
const clockInterval = 250 * time.Millisecond

// newClock starts with the machine's time.
func newClock(pids func() ([]int, error)) *clock {
	ctx, cancel := context.WithCancel(context.Background())
	c := &clock{pids: pids}
	ended := make(chan error, 1)
	go func() {
		ended <- poll.Until(ctx, clockInterval, func(context.Context) error {
			if err := c.apply(); err != nil {
				return poll.Permanent(err)
			}
			return errors.New("until stopped")
		})
	}()
	c.stop = func() error {
		cancel()
		err := <-ended
		if errors.As(err, new(*poll.Error)) {
			err = nil // it was stopped
		}
		return errors.Join(err, c.jump(0))
	}
	return c
}

// jump sets the difference from the machine's time, for all processes.
func (c *clock) jump(offset time.Duration) error {
	c.mutex.Lock()
	c.offset = offset
	c.mutex.Unlock()
	return c.apply()
}

func (c *clock) apply() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	pids, err := c.pids()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := shiftClock(pid, c.offset); err != nil && !gone(err) {
			return fmt.Errorf("clock of process %d: %w", pid, err)
		}
	}
	return nil
}

// gone says whether an error means that a process has exited, or is exiting.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EIO) ||
		errors.Is(err, errNoVDSO)
}

var errNoVDSO = errors.New("no vdso is mapped")

// shiftClock makes the real-time clock of a process differ from the machine's.
func shiftClock(pid int, offset time.Duration) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("clocks can be shifted on amd64 only, not on %s", runtime.GOARCH)
	}
	begin, end, err := findVDSO(pid)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(filepath.Join("/proc", strconv.Itoa(pid), "mem"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = memory.Close() }()
	image := make([]byte, end-begin)
	if _, err := memory.ReadAt(image, begin); err != nil {
		return err
	}
	patches, err := patch(image, offset)
	if err != nil || len(patches) == 0 {
		return err
	}
	// No thread may run in the middle of what changes.
	defer func() { _ = unix.Kill(pid, unix.SIGCONT) }()
	if err := stopThreads(pid); err != nil {
		return err
	}
	for _, p := range patches {
		if _, err := memory.WriteAt(p.code, begin+int64(p.at)); err != nil {
			return err
		}
	}
	return nil
}

// stopTimeout is how long a process may take to stop, which an uninterruptible system call can delay.
const stopTimeout = 10 * time.Second

// stopThreads stops all threads of a process. It repeats the signal, because of some hundred one was without effect.
// The error has the states of the threads.
func stopThreads(pid int) error {
	return poll.Within(context.Background(), stopTimeout, 10*time.Millisecond, func(context.Context) error {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			return poll.Permanent(err)
		}
		threads, err := procfs.AllThreads(pid)
		if err != nil {
			return poll.Permanent(err)
		}
		var running []string
		for _, thread := range threads {
			stat, err := thread.Stat()
			if err != nil {
				continue // the thread has ended
			}
			if !slices.Contains([]string{"T", "Z", "X"}, stat.State) { // stopped, or at its end
				running = append(running, fmt.Sprintf("%d %s", thread.PID, stat.State))
			}
		}
		if len(running) > 0 {
			return fmt.Errorf("these threads do not stop: %s", strings.Join(running, ", "))
		}
		return nil
	})
}

// findVDSO returns where the shared object is mapped.
func findVDSO(pid int) (begin, end int64, err error) {
	maps, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			if _, err := fmt.Sscanf(line, "%x-%x ", &begin, &end); err != nil {
				return 0, 0, err
			}
			return begin, end, nil
		}
	}
	return 0, 0, errNoVDSO
}

type change struct {
	at   int
	code []byte
}

// replacement is code that asks the kernel and adds the offset, whose place in the code is where marker is.
type replacement struct {
	symbol string
	code   []byte
}

var marker = []byte{0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x08}

// The functions get their arguments in rdi and rsi; a system call changes rax, rcx and r11, which the caller does not
// expect to keep.
var replacements = []replacement{
	{"__vdso_clock_gettime", []byte{
		0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05, // mov eax, 228 (clock_gettime); syscall
		0x85, 0xc0, 0x75, 0x16, // test eax, eax; jnz end
		0x85, 0xff, 0x74, 0x05, // test edi, edi (CLOCK_REALTIME); jz add
		0x83, 0xff, 0x05, 0x75, 0x0d, // cmp edi, 5 (CLOCK_REALTIME_COARSE); jne end
		0x48, 0xb9, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x08, // add: mov rcx, offset
		0x48, 0x01, 0x0e, // add [rsi], rcx
		0xc3, // end: ret
	}},
	{"__vdso_gettimeofday", []byte{
		0xb8, 0x60, 0, 0, 0, 0x0f, 0x05, // mov eax, 96 (gettimeofday); syscall
		0x48, 0x85, 0xff, 0x74, 0x0d, // test rdi, rdi; jz end
		0x48, 0xb9, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x08, // mov rcx, offset
		0x48, 0x01, 0x0f, // add [rdi], rcx
		0xc3, // end: ret
	}},
	{"__vdso_time", []byte{
		0x57,                                        // push rdi
		0x31, 0xff, 0xb8, 0xc9, 0, 0, 0, 0x0f, 0x05, // xor edi, edi; mov eax, 201 (time); syscall
		0x5f,                                                       // pop rdi
		0x48, 0xb9, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x08, // mov rcx, offset
		0x48, 0x01, 0xc8, // add rax, rcx
		0x48, 0x85, 0xff, 0x74, 0x03, // test rdi, rdi; jz end
		0x48, 0x89, 0x07, // mov [rdi], rax
		0xc3, // end: ret
	}},
}

// slot is the space for each replacement, at the end of the object, which is filled with zeros up to the end of a page.
const slot = 64

// patch returns what to change in an image, nothing if it has that offset. The replacements come first, then the jumps
// to them.
func patch(image []byte, offset time.Duration) ([]change, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	free := len(image) - slot*len(replacements)
	var changes, jumps []change
	for n, r := range replacements {
		at, code := free+n*slot, bytes.Clone(r.code)
		value := bytes.Index(code, marker)
		binary.LittleEndian.PutUint64(code[value:], uint64(int64(offset/time.Second)))
		switch now := image[at : at+slot]; {
		case bytes.HasPrefix(now, code):
			continue // it has the offset already
		case bytes.HasPrefix(now, code[:value]):
		case len(bytes.Trim(now, "\x00")) > 0:
			return nil, errors.New("the vdso has no free space at its end")
		case offset == 0:
			continue // it has never been changed
		}
		found := false
		for _, symbol := range symbols {
			if symbol.Name == r.symbol {
				jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(int32(at-int(symbol.Value)-5)))
				jumps, found = append(jumps, change{int(symbol.Value), jump}), true
			}
		}
		if !found {
			return nil, fmt.Errorf("the vdso has no symbol %s", r.symbol)
		}
		changes = append(changes, change{at, code})
	}
	return append(changes, jumps...), nil
}
