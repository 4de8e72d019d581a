package snapshot

import (
	"fmt"
	"os"
	"testing"
)

func TestObjectNames(t *testing.T) {
	for prefix, want := range map[string]string{
		"": "etcd-1-control-a.db", "clusters/prod": "clusters/prod/etcd-1-control-a.db",
	} {
		if got := (&Bucket{Prefix: prefix, Instance: "control-a"}).object("etcd-1.db"); got != want {
			t.Errorf("%q: got %q, want %q", prefix, got, want)
		}
	}
	if err := fmt.Sprint(refusals.Explain(os.ErrNotExist)); err != os.ErrNotExist.Error() {
		t.Errorf("got %q", err)
	}
}
