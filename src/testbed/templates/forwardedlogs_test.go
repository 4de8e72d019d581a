package templates

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/testbed/selfsigned"
)

// syslogRelease is a checkout of cloudfoundry/syslog-release, whose job is rendered, or else what stands in for it.
func syslogRelease() string {
	if dir := os.Getenv("SYSLOG_RELEASE_DIR"); dir != "" {
		return dir
	}
	return "testdata/syslog"
}

const (
	// syslogServer is the name that ops-files/forward-logs.yml is given for the server.
	syslogServer = "logs.example.com"
	// forwardedLine is that of a frame with TLS: RFC 5424 in the job's format. rsyslog ends each with a newline.
	forwardedLine = `^<\d+>1 \S+ \S+ (\S+) \S+ \S+ \[instance@47450 [^\]]*deployment="[^"]+" group="control"[^\]]*\] ` +
		`(.*)$`
	// longestFrame is where the job's program cuts a line with its header: LoadConfig in config.go of
	// cloudfoundry/blackbox.
	longestFrame = 99_990
	// follower is what that program names itself in a frame, syslog/drainer.go.
	follower = "cloudfoundry-blackbox"
)

// receiver is a syslog server with TLS.
type receiver struct {
	listener net.Listener
	sync.Mutex
	refused int // connections that sent nothing
	lines   []string
}

func (r *receiver) serve(config *tls.Config) {
	for {
		connection, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		go r.read(tls.Server(connection, config))
	}
}

func (r *receiver) read(connection *tls.Conn) {
	defer func() { _ = connection.Close() }()
	scanner, received := bufio.NewScanner(connection), false
	scanner.Buffer(nil, 2*longestFrame)
	for scanner.Scan() {
		received = true
		r.Lock()
		r.lines = append(r.lines, scanner.Text())
		r.Unlock()
	}
	if !received {
		r.Lock()
		r.refused++
		r.Unlock()
	}
}

// seen returns the lines, without those that rsyslog itself writes, as "tag message", and how many connections sent
// none.
func (r *receiver) seen(t *testing.T) (lines []string, refused int) {
	t.Helper()
	r.Lock()
	defer r.Unlock()
	for _, line := range r.lines {
		match := regexp.MustCompile(forwardedLine).FindStringSubmatch(line)
		if match == nil {
			t.Fatalf("the server received %.500q", line)
		}
		if match[1] != "rsyslogd" {
			lines = append(lines, match[1]+" "+match[2])
		}
	}
	return lines, r.refused
}

// TestForwardedLogs runs rsyslog as ops-files/forward-logs.yml has the job syslog_forwarder configure it, and a server
// that receives lines over TLS. BLACKBOX_BIN is the program of that release that reads files; without it, the test
// writes the frames that it sends (syslog/drainer.go of cloudfoundry/blackbox).
func TestForwardedLogs(t *testing.T) {
	if _, err := exec.LookPath("rsyslogd"); err != nil || os.Geteuid() != 0 || testing.Short() {
		t.Skip("requires root and Debian's packages rsyslog and rsyslog-gnutls; make test-programs installs them")
	}
	certificate, key, err := selfsigned.New(syslogServer, syslogServer)
	if err != nil {
		t.Fatal(err)
	}
	otherName, otherNameKey, err := selfsigned.New("other.example.com", "other.example.com")
	if err != nil {
		t.Fatal(err)
	}
	otherCA, otherCAKey, err := selfsigned.New(syslogServer, syslogServer)
	if err != nil {
		t.Fatal(err)
	}
	uri := strings.Repeat("x", longestFrame-500)
	audited := `audit {"kind":"Event","requestURI":"` + uri + `","verb":"get \"%s\" <1>"}`
	config := syslogConfig(t, slices.Concat(certificate, otherName))
	for name, c := range map[string]struct {
		certificate, key []byte
		arrives          bool
	}{
		"its certificate":           {certificate, key, true},
		"certificate of other name": {otherName, otherNameKey, false},
		"certificate of other CA":   {otherCA, otherCAKey, false},
	} {
		t.Run(name, func(t *testing.T) {
			// Sockets and processes of this thread are in a network of their own, in which port 514 is free. The thread
			// ends with the test.
			runtime.LockOSThread()
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			r := startReceiver(t, c.certificate, c.key)
			logs := t.TempDir()
			console := startAsOnVM(t, config, logs, "rsyslogd", "-n", "-f", "/var/vcap/rsyslog.conf", "-i", "/var/pid")
			eventually.Succeeds(t, time.Minute, "waiting for rsyslog", func() error {
				connection, err := net.Dial("tcp", "127.0.0.1:514")
				if err == nil {
					err = connection.Close()
				}
				return err
			})
			// From another address, the first line would arrive if it was not dropped.
			sendFrame(t, "127.0.0.2", "kubernetes-audit", follower, "forged")
			sendFrame(t, "127.0.0.1", "sshd", "42", "accepted")
			followed := []string{"kubernetes-audit " + audited, "kubelet I1126 12:00:00.000000 started"}
			forwardFiles(t, config, logs, followed)
			if !c.arrives {
				eventually.Succeeds(t, time.Minute, "waiting for refused connections", func() error {
					if lines, refused := r.seen(t); len(lines) > 0 || refused < 2 {
						return fmt.Errorf("%d lines, %d connections; %s", len(lines), refused, console)
					}
					return nil
				})
				return
			}
			want := slices.Sorted(slices.Values(append(followed, "sshd accepted")))
			eventually.Succeeds(t, time.Minute, "waiting for the lines", func() error {
				lines, _ := r.seen(t)
				if slices.Sort(lines); !slices.Equal(lines, want) {
					return fmt.Errorf("got %.500q, want %.500q; %s", lines, want, console)
				}
				local, err := os.ReadFile(filepath.Join(logs, "local"))
				if err != nil {
					return err
				}
				if !bytes.Contains(local, []byte("accepted")) || bytes.Count(local, []byte("\n")) != 1 {
					return fmt.Errorf("the VM's own log must have sshd's line alone:\n%.2000s", local)
				}
				return nil
			})
		})
	}
}

func startReceiver(t *testing.T, certificate, key []byte) *receiver {
	t.Helper()
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:6514")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	r := &receiver{listener: listener}
	go r.serve(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	return r
}

// stemcellSettings are those of a stemcell's /etc/rsyslog.conf that bear on lines (rsyslog_config of
// bosh-linux-stemcell-builder). It comes before the files of /etc/rsyslog.d.
const stemcellSettings = "$MaxMessageSize 4k\n$RepeatedMsgReduction on\n"

// localLog is a rule like those of a stemcell's /etc/rsyslog.d/50-default.conf, which write /var/log. It comes after
// the job's files.
const localLog = "*.* /var/vcap/sys/log/local\n"

// syslogConfig returns a directory with the files of job syslog_forwarder as forward-logs.yml has them rendered, and
// with rsyslog.conf, which has them in the order in which its pre-start numbers them for /etc/rsyslog.d.
func syslogConfig(t *testing.T, ca []byte) string {
	t.Helper()
	control := group(t, plan(t, deployment{ops: []string{"forward-logs.yml"}, vars: []string{
		"syslog_address=127.0.0.1", "syslog_port=6514", "syslog_permitted_peer=" + syslogServer,
		"syslog_ca=" + string(ca),
	}}), "control")
	dir := t.TempDir()
	for _, rendered := range control.Instances[0].Rendered {
		if rendered.Name == "syslog_forwarder" {
			writeAll(t, dir, rendered.Files)
		}
	}
	whole := []byte(stemcellSettings)
	for _, name := range []string{
		"", "-forwarding-setup", "-custom-rules", "-vcap-filter", "-debug-filter", "-forwarding-rules",
		"-file-exclusion",
	} {
		part, err := os.ReadFile(filepath.Join(dir, "config/syslog-release"+name+".conf"))
		if os.IsNotExist(err) && strings.HasSuffix(name, "-filter") {
			continue // what stands in for the job has no filters; those of the job are off
		}
		if err != nil {
			t.Fatal(err)
		}
		whole = append(append(whole, part...), '\n')
	}
	writeAll(t, dir, map[string][]byte{"rsyslog.conf": append(whole, localLog...)})
	return dir
}

// startAsOnVM starts a program that sees the files of the job and logs where a VM has them, and ends it with the test.
// It returns what the program writes.
func startAsOnVM(t *testing.T, config, logs string, argv ...string) *console {
	t.Helper()
	c := &console{}
	command := exec.Command("unshare", append([]string{"--mount", "bash", "-euc", `
mount -t tmpfs tmpfs /var
mkdir -p /var/vcap/{jobs/syslog_forwarder,data/syslog_forwarder/buffered,sys/log}
mount --bind "$1" /var/vcap/jobs/syslog_forwarder
mount --bind "$2" /var/vcap/sys/log
cp "$1/rsyslog.conf" /var/vcap/
shift 2
exec "$@"`, "bash", config, logs}, argv...)...)
	command.Stdout, command.Stderr = c, c
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return c
}

// console is what a process writes.
type console struct {
	sync.Mutex
	text bytes.Buffer
}

func (c *console) Write(p []byte) (int, error) {
	c.Lock()
	defer c.Unlock()
	return c.text.Write(p)
}

func (c *console) String() string {
	c.Lock()
	defer c.Unlock()
	return "the program wrote: " + c.text.String()
}

// sendFrame sends a line to rsyslog from an address of the VM, as the job's program does, with a severity but no
// facility and a time in microseconds (rfc5424/rfc5424.go and marshal.go of cloudfoundry/go-loggregator), the most that
// RFC 5424, 6.2.3, allows. Of these nanoseconds, rsyslog would make a line with a form feed in its time
// (rsyslog/rsyslog#6768).
func sendFrame(t *testing.T, from, tag, process, line string) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	connection, err := dialer.Dial("tcp", "127.0.0.1:514")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, time.November, 26, 12, 0, 0, 22054, time.UTC).Format("2006-01-02T15:04:05.999999-07:00")
	message := fmt.Sprintf("<6>1 %s - %s %s - - %s", at, tag, process, line)
	_, err = fmt.Fprintf(connection, "%d %s", len(message), message)
	if err := connection.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// forwardFiles has lines, "tag message", forwarded one after the other.
func forwardFiles(t *testing.T, config, logs string, lines []string) {
	t.Helper()
	program := os.Getenv("BLACKBOX_BIN")
	if program == "" {
		for _, line := range lines {
			tag, message, _ := strings.Cut(line, " ")
			sendFrame(t, "127.0.0.1", tag, follower, message)
		}
		return
	}
	for _, line := range lines {
		tag, _, _ := strings.Cut(line, " ")
		writeAll(t, logs, map[string][]byte{tag + "/" + tag + ".log": []byte("before it was followed\n")})
	}
	c := startAsOnVM(t, config, logs, program, "-config=/var/vcap/jobs/syslog_forwarder/config/blackbox_config.yml")
	eventually.Succeeds(t, time.Minute, "waiting for the files to be followed", func() error {
		if started := strings.Count(c.String(), "Starting to tail file"); started < len(lines) {
			return fmt.Errorf("%d of %d are; %s", started, len(lines), c)
		}
		return nil
	})
	for _, line := range lines {
		time.Sleep(2 * time.Second) // each file has a connection of its own, and is looked at each second
		tag, message, _ := strings.Cut(line, " ")
		file, err := os.OpenFile(filepath.Join(logs, tag, tag+".log"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(message + "\n"); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
