package debian

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/debian/remote"
)

// Checkout is where a machine has the files of a test, which it starts in.
const Checkout = "/checkout"

// port is the name of the serial port by which a test runs scripts in a machine.
const port = "test"

// Machine is a running QEMU.
type Machine struct {
	// Console is the file that the machine's serial console is written to.
	Console string
	// Slower is about how many times longer programs run than here, where the processor is emulated.
	Slower int

	options Options
	client  *remote.Client
	cmd     *exec.Cmd
	conn    net.Conn
	exited  chan struct{}
}

// Options describe a machine.
type Options struct {
	Image Image
	// Checkout is a disk image, mounted at Checkout and written to.
	Checkout string
	// Dir is where the machine's files are, such as its copy of the image's disk.
	Dir string
	// MemoryMiB is the machine's memory.
	MemoryMiB int
}

// Start creates a machine with two processors, and switches it on.
func Start(ctx context.Context, o Options) (*Machine, error) {
	m := &Machine{Console: filepath.Join(o.Dir, "console.log"), Slower: 1, options: o}
	if err := command(ctx, "cp", "--sparse=always", o.Image.Disk, m.disk()); err != nil {
		return nil, err
	}
	return m, m.start(ctx)
}

// disk is the machine's copy of the image's.
func (m *Machine) disk() string { return filepath.Join(m.options.Dir, "disk.ext4") }

func (m *Machine) start(ctx context.Context) error {
	o := m.options
	m.exited = make(chan struct{})
	socket := filepath.Join(o.Dir, "port")
	accelerator, processor := "kvm", "host"
	if !virtualizes() {
		// One with fewer features is emulated faster: it has less to save at each switch between tasks.
		accelerator, processor, m.Slower = "tcg,thread=multi", "Nehalem", 8
	}
	m.cmd = exec.Command(
		"qemu-system-x86_64", "-nodefaults", "-display", "none", "-machine", "q35", "-accel", accelerator,
		"-cpu", processor, "-smp", "2", "-m", strconv.Itoa(o.MemoryMiB), "-nic", "none",
		// Timers of an emulated processor are late after a reset, so a machine that reboots is switched on again.
		"-no-reboot",
		"-chardev", "file,id=console,append=on,path="+m.Console, "-serial", "chardev:console",
		"-kernel", o.Image.Kernel, "-initrd", o.Image.Initrd,
		// On a busy machine an emulated processor waits, which the kernel would report as a stall, and take for a
		// processor whose clock is wrong: it would then ask the emulated HPET each time. It needs no mitigations.
		"-append", "root=/dev/vda rw console=ttyS0 loglevel=4 panic=-1 rcupdate.rcu_cpu_stall_suppress=1 "+
			"tsc=reliable mitigations=off",
		"-drive", "if=virtio,format=raw,cache=unsafe,file="+m.disk(),
		"-drive", "if=virtio,format=raw,cache=unsafe,file="+o.Checkout,
		"-object", "rng-builtin,id=rng", "-device", "virtio-rng-pci,rng=rng", "-device", "virtio-serial-pci",
		"-chardev", "socket,id="+port+",server=on,wait=off,path="+socket,
		"-device", "virtserialport,chardev="+port+",name="+port,
	)
	log, err := os.Create(filepath.Join(o.Dir, "qemu.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := m.cmd.Start(); err != nil {
		return fmt.Errorf("starting QEMU (Debian package qemu-system-x86): %w", err)
	}
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait()
		close(exited)
	}(m.cmd, m.exited)
	if err := poll.Within(ctx, time.Minute, 50*time.Millisecond, func(context.Context) error {
		select {
		case <-m.exited:
			said, _ := os.ReadFile(log.Name())
			return poll.Permanent(fmt.Errorf("QEMU ended: %s", said))
		default:
		}
		var err error
		m.conn, err = net.Dial("unix", socket)
		return err
	}); err != nil {
		m.Stop()
		return err
	}
	m.client = remote.NewClient(m.conn)
	return nil
}

// virtualizes says whether this machine's processor runs the kernels of others. Some have /dev/kvm without that, which
// runs none but their own.
func virtualizes() bool {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = device.Close()
	about, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(about)) {
		if flags, found := strings.CutPrefix(line, "flags"); found {
			return strings.Contains(flags+" ", " vmx ") || strings.Contains(flags+" ", " svm ")
		}
	}
	return false
}

// Stop ends the machine as if the power was lost.
func (m *Machine) Stop() {
	_ = m.cmd.Process.Kill()
	<-m.exited
	if m.conn != nil {
		_ = m.conn.Close()
	}
}

// Reboot runs a script that reboots the machine, and switches the machine on again when it has shut down.
func (m *Machine) Reboot(ctx context.Context, script string) error {
	client := m.client
	go func() { _, _ = client.Run(ctx, script, io.Discard) }() // has no end
	select {
	case <-ctx.Done():
		return fmt.Errorf("the machine has not shut down: %w", context.Cause(ctx))
	case <-m.exited:
	}
	_ = m.conn.Close()
	return m.start(ctx)
}

// AwaitBoot waits until the machine has booted.
func (m *Machine) AwaitBoot(ctx context.Context) error {
	if err := m.client.AwaitBoot(ctx); err != nil {
		end, _ := tail.File(m.Console, 0, 8<<10, 40)
		return fmt.Errorf("%w; the console ends with:\n%s", err, end)
	}
	return nil
}

// Run runs a script of the shell in the machine, writes its output to out, and returns its exit code.
func (m *Machine) Run(ctx context.Context, script string, out io.Writer) (int, error) {
	return m.client.Run(ctx, "cd "+Checkout+"\n"+script, out)
}
