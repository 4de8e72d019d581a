package bosh

import "testing"

func TestPaths(t *testing.T) {
	r := DefaultRoot
	for got, want := range map[string]string{
		r.Job("etcd", "bin", "pre-start"):      "/var/vcap/jobs/etcd/bin/pre-start",
		r.Package("helpers"):                   "/var/vcap/packages/helpers",
		r.Log("etcd", "etcd.log"):              "/var/vcap/sys/log/etcd/etcd.log",
		r.Run("etcd", "etcd.pid"):              "/var/vcap/sys/run/etcd/etcd.pid",
		r.Data("cloud-provider", "node.json"):  "/var/vcap/data/cloud-provider/node.json",
		Root("/tmp/x").Store("etcd", "member"): "/tmp/x/store/etcd/member",
		r.Path("instance", "id"):               "/var/vcap/instance/id",
		r.Path():                               "/var/vcap",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
