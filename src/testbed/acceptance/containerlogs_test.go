package acceptance

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// checkContainerLogs has a pod write 10,000 lines a second, for long enough that kubelet rotates its log several times,
// and expects all lines in the files. Unlike logrotate, kubelet has the file opened anew (rotateLatestLog in
// pkg/kubelet/logs/container_log_manager.go), which loses nothing.
func (l *lab) checkContainerLogs(t *testing.T, workers ...string) {
	const program, written = "/var/vcap/data/container-logs/busybox", 400_000
	content, err := os.ReadFile("/usr/bin/busybox")
	if err != nil {
		t.Fatalf("%v: install busybox-static", err)
	}
	for _, worker := range workers {
		l.uploadExecutable(t, worker, program, content)
	}
	manifest, err := os.ReadFile("testdata/containerlogs.yml")
	if err != nil {
		t.Fatal(err)
	}
	l.mustKubectl(t, strings.ReplaceAll(string(manifest), "IMAGE", l.smokeImage(t)), "apply", "-f", "-")
	t.Cleanup(func() { l.mustKubectl(t, "", "delete", "namespace", "container-logs", "--timeout=90s") })
	started := time.Now()
	l.mustKubectl(
		t, "", "-n", "container-logs", "wait", "pod/writer", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=3m",
	)
	t.Logf("%d lines were written in %.1f s", written, time.Since(started).Seconds())

	// A line that is half written when the file is opened anew begins in one file, with the tag P, and ends in the next
	// (redirectLogs in internal/cri/io/logger.go of containerd).
	const count = `cd /var/log/pods/container-logs_writer_*/writer 2>/dev/null || exit 0
whole='{ tag = $3; sub(/^[^ ]+ [a-z]+ [FP] /, ""); printf tag == "P" ? "%s" : "%s\n", $0 }'
numbers=$(zcat -f -- 0.log.* 0.log | awk "$whole" | grep -oE '^1[0-9]{6}( 0{143})?$' | cut -d' ' -f1 | sort -u | wc -l)
echo $(ls | wc -l) "$numbers" $(du -sm . | cut -f1)`
	for _, worker := range workers {
		out := l.ssh(t, worker, "bash", "-c", count)
		if out == "" {
			continue // the pod was not here
		}
		var files, lines, size int
		if _, err := fmt.Sscan(out, &files, &lines, &size); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
		t.Logf("%s has %d lines in %d files of %d MiB", worker, lines, files, size)
		if files < 3 || lines != written {
			t.Errorf("%s has %d of %d lines in %d files, want all, in 3 or more", worker, lines, written, files)
		}
		return
	}
	t.Errorf("none of %q has logs of the pod", workers)
}
