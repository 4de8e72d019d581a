package ipset

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// network puts the test's thread in a network namespace of its own, which has no sets.
func network(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can create network namespaces")
	}
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

func saved(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	if err := Run([]string{"save"}, nil, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestSetsOfTheController restores what kube-router writes (buildIPSetRestore in its pkg/utils/ipset.go).
func TestSetsOfTheController(t *testing.T) {
	network(t)
	for range 2 { // the second time all sets exist
		err := Run([]string{"restore", "-exist"}, strings.NewReader(`create TMP-A hash:ip timeout 0
flush TMP-A
add TMP-A 10.200.0.7 timeout 0
add TMP-A 10.200.0.7 timeout 0
create KUBE-DST-A hash:ip timeout 0
swap TMP-A KUBE-DST-A
flush TMP-A
create TMP-B hash:net timeout 0
flush TMP-B
add TMP-B 10.0.0.0/8 timeout 0
add TMP-B 10.0.1.0/24 timeout 0 nomatch
create KUBE-SRC-B hash:net timeout 0
swap TMP-B KUBE-SRC-B
flush TMP-B
destroy TMP-A
destroy TMP-B
`), nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		"create KUBE-DST-A hash:ip timeout 0\nadd KUBE-DST-A 10.200.0.7 timeout 0\n",
		"create KUBE-SRC-B hash:net timeout 0\n", "add KUBE-SRC-B 10.0.0.0/8 timeout 0\n", "add KUBE-SRC-B " +
			"10.0.1.0/24 nomatch timeout 0\n",
	} {
		if got := saved(t); !strings.Contains(got, want) || strings.Contains(got, "TMP-") {
			t.Errorf("the sets are\n%s\nwant\n%s", got, want)
		}
	}
	before := saved(t)
	if err := Run([]string{"restore"}, strings.NewReader(before), nil); err != nil || saved(t) != before {
		t.Errorf("restoring what was saved: %v\n%s", err, saved(t))
	}
	if err := Run([]string{"destroy", "KUBE-DST-A"}, nil, nil); err != nil || strings.Contains(saved(t), "KUBE-DST-A") {
		t.Errorf("the set is not destroyed: %v\n%s", err, saved(t))
	}
}

// TestExceptions asks the kernel: a member that is marked nomatch is not in the set.
func TestExceptions(t *testing.T) {
	network(t)
	err := Run(
		[]string{"restore"},
		strings.NewReader(
			"create A hash:net timeout 0\nadd A 127.0.0.0/8 timeout 0\nadd A 127.0.1.0/24 timeout 0 nomatch\n",
		),
		nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	script := `set -e
ip link set lo up
iptables -A OUTPUT -p udp -m set --match-set A dst -m comment --comment matched -j ACCEPT
for address in 127.0.0.1 127.0.1.1 127.0.2.1; do timeout 1 bash -c "echo > /dev/udp/$address/9"; done
iptables -L OUTPUT -v -n -x | awk '/matched/ { print $1 }'`
	if out, err := exec.CommandContext(t.Context(), "bash", "-c", script).
		CombinedOutput(); err != nil ||
		strings.TrimSpace(string(out)) != "2" {
		t.Errorf("%v; packets to members: %s, want 2", err, out)
	}
}

func TestMembersAsKubernetesAcceptsThem(t *testing.T) {
	network(t)
	if err := Run(
		[]string{
			"create", "-exist", "A", "hash:net", "family", "inet", "hashsize", "1024", "maxelem", "65536", "timeout",
			"0",
		},
		nil,
		nil,
	); err != nil {
		t.Fatal(err)
	}
	for member, want := range map[string]string{
		"010.1.0.0/16": "10.1.0.0/16", "10.2.3.4/16": "10.2.0.0/16",
		"::ffff:10.3.0.0/112": "10.3.0.0/16", "10.4.0.1": "10.4.0.1/32",
	} {
		if err := Run([]string{"add", "A", member, "timeout", "0"}, nil, nil); err != nil ||
			!strings.Contains(saved(t), "add A "+want+" timeout 0\n") {
			t.Errorf("%s: %v\n%s", member, err, saved(t))
		}
	}
}

// TestAllAddresses are two networks, however a policy spells them.
func TestAllAddresses(t *testing.T) {
	for _, member := range []string{"0.0.0.0/0", "0.0.0.0/00", "10.0.0.1/00", "::ffff:0.0.0.0/96"} {
		got, err := parse(member)
		if err != nil || fmt.Sprint(got) != "[0.0.0.0/1 128.0.0.0/1]" {
			t.Errorf("%s: %s, %v", member, got, err)
		}
	}
	for _, member := range []string{"::/0", "::ffff:0.0.0.0/95"} {
		if got, err := parse(member); err == nil {
			t.Errorf("%s is %s", member, got)
		}
	}
}

func TestRefusals(t *testing.T) {
	network(t)
	for _, test := range []struct{ in, want string }{
		{"list A", `unknown command "list"`},
		{"create A", "create requires 2 arguments"},
		{"create A hash:mac", "hash:mac are not supported"},
		{"create A hash:ip family inet6", "family inet6 is not supported"},
		{"create A hash:ip timeout", "option timeout has no value"},
		{"create A hash:ip timeout soon", "option timeout"},
		{"create A hash:ip color 1", "unknown option color"},
		{"add A fd00::1/64", "is no IPv4 address or network"},
		{"add A pod", "invalid CIDR"},
		{"add A 10.0.0.1 color", "unknown option color"},
		{"add A 10.0.0.1", "no such file"},
	} {
		if err := Run(
			[]string{"restore"}, strings.NewReader("\n"+test.in+"\n"), nil,
		); err == nil || !strings.Contains(err.Error(), "line 2: "+test.in+": ") ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.in, err, test.want)
		}
	}
	if err := Run(nil, nil, nil); err == nil || !strings.Contains(err.Error(), "no command") {
		t.Errorf("without a command: %v", err)
	}
}
