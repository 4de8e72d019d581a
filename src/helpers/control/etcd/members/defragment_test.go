package members

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
)

// fill writes and deletes n keys of 100 KB, and compacts: the space that they had is no longer used, and still in the
// file.
func (d *deployment) fill(member, n int) error {
	value := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 100_000))
	for i := range n {
		request := map[string]string{"key": encoded(fmt.Sprintf("filler-%d", i%10)), "value": value}
		if err := d.api(member).call(d.t.Context(), "kv/put", request, nil); err != nil {
			return err
		}
	}
	return nil
}

func (d *deployment) status(n int) status {
	d.t.Helper()
	s, err := d.configs[n].status(d.t.Context(), d.instances[n])
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// serves waits until a member reads, which it does with an alarm too.
func (d *deployment) serves(n int) {
	d.t.Helper()
	eventually.Succeeds(d.t, timeout, fmt.Sprintf("reads of member %d", n), func() error {
		_, err := d.configs[n].status(d.t.Context(), d.instances[n])
		return err
	})
}

// leader returns the instance whose member leads.
func (d *deployment) leader(instances ...int) int {
	d.t.Helper()
	for _, n := range instances {
		if d.status(n).leads() {
			return n
		}
	}
	d.t.Fatal("no member leads")
	return 0
}

func TestDefragmentOneByOneTheLeaderLast(t *testing.T) {
	d := newDeployment(t)
	d.deploy(0, 1, 2)
	passes(t, d.fill(0, 60))
	leader := d.leader(0, 1, 2)
	passes(t, d.configs[leader].compact(t.Context(), map[Instance]status{d.instances[leader]: d.status(leader)}))
	before := d.status(leader)

	var log bytes.Buffer
	// A follower leaves the work to the leader.
	follower := (leader + 1) % 3
	passes(t, d.configs[follower].defragmentIfLeading(t.Context(), always, slog.New(slog.NewTextHandler(&log, nil))))
	if log.Len() > 0 {
		t.Errorf("a follower did something: %s", &log)
	}
	passes(t, d.configs[leader].defragmentIfLeading(t.Context(), always, slog.New(slog.NewTextHandler(&log, nil))))
	var order []string
	for _, line := range strings.Split(log.String(), "\n") {
		if _, rest, ok := strings.Cut(line, `msg="etcd is defragmented" instance=`); ok {
			order = append(order, strings.Fields(rest)[0])
		}
	}
	if len(order) != 3 || order[2] != d.instances[leader].Name {
		t.Errorf("defragmented %v, the leader was %s", order, d.instances[leader].Name)
	}
	if !strings.Contains(log.String(), "leadership is moved") || d.status(leader).leads() {
		t.Errorf("the leader did not hand over: %s", &log)
	}
	for n := range 3 {
		if s := d.status(n); s.Size >= before.Size/2 {
			t.Errorf("member %d has %d bytes of %d", n, s.Size, before.Size)
		}
	}
	d.has(leader, "filler-1")
}

func TestNothingIsDefragmentedWithoutReason(t *testing.T) {
	mib := int64(1 << 20)
	for _, test := range []struct {
		size, inUse int64
		want        bool
	}{
		{size: 150 * mib, inUse: 20 * mib, want: true},
		{size: 99 * mib, inUse: 0},           // small
		{size: 1000 * mib, inUse: 600 * mib}, // most of it is used
		{size: 2000 * mib, inUse: 900 * mib, want: true},
	} {
		if got := (status{Size: test.size, InUse: test.inUse}).worthwhile(); got != test.want {
			t.Errorf("%d of %d bytes are used: worthwhile is %t", test.inUse, test.size, got)
		}
	}
}

func TestNothingIsDefragmentedWhileAMemberIsMissing(t *testing.T) {
	d := newDeployment(t)
	d.deploy(0, 1, 2)
	leader := d.leader(0, 1, 2)
	lost := (leader + 1) % 3
	d.running[lost].stop()
	err := d.configs[leader].defragmentIfLeading(t.Context(), always, quiet())
	fails(t, err, "while a member is missing", d.instances[lost].Name)
}

// TestMakeSpace fills the quota until etcd refuses writes. Old revisions are what filled it, so space can be made.
func TestMakeSpace(t *testing.T) {
	d := full(t, 16<<20)
	leader := d.leader(0, 1, 2)
	fails(
		t, d.configs[leader].defragmentIfLeading(t.Context(), status.worthwhile, quiet()), "etcd-defragment",
		"quota_backend_bytes",
	)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	passes(t, d.configs[0].MakeSpace(ctx, quiet()))
	d.put(1, "written after")
	d.has(2, "acknowledged", "written after")
	passes(t, d.configs[0].MakeSpace(ctx, quiet())) // nothing to do
}

// TestNoSpaceToMake: the objects themselves are too large.
func TestNoSpaceToMake(t *testing.T) {
	d := newDeployment(t)
	d.quota = 8 << 20
	d.deploy(0)
	value := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 500_000))
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		err = d.api(0).
			call(t.Context(), "kv/put", map[string]string{"key": encoded(fmt.Sprint(i)), "value": value}, nil)
	}
	fails(t, err, "database space exceeded")
	d.quota = 2 << 20 // a file of 8 MiB may have less than half of that in objects, if etcd wrote each of them alone
	d.running[0].stop()
	passes(t, d.start(0))
	d.serves(0)
	fails(t, d.configs[0].MakeSpace(t.Context(), quiet()), "increase quota_backend_bytes")
	fails(t, d.fill(0, 1), "database space exceeded")
}
