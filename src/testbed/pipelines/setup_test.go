package pipelines

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestSetupsInstallOneAfterAnother runs ci/setup.sh three times at once, as targets that run side by side do on a
// machine without packages. This apt-get refuses to run beside another one, as Debian's does, and to install without a
// policy that keeps services from starting.
func TestSetupsInstallOneAfterAnother(t *testing.T) {
	dir := t.TempDir()
	script := strings.NewReplacer(
		"/usr/sbin/policy-rc.d", filepath.Join(dir, "policy"), "/run/lock/", dir+"/", "$EUID", "0",
		"/run/systemd/system", filepath.Join(dir, "systemd"),
	).Replace(read(t, "ci/setup.sh"))
	for name, text := range map[string]string{
		"setup.sh":   script,
		"sleep":      "#!/bin/bash\n",
		"dpkg-query": "#!/bin/bash\n[[ ${!#} != new-* || -e $STATE/${!#} ]] && echo installed\n",
		"apt-get": `#!/bin/bash
[[ $1 == install ]] || exit 0
mkdir "$STATE/busy" || { echo "apt-get runs already"; exit 1; }
/bin/sleep 0.3
[[ -e $STATE/policy ]] || { echo "services would start"; rmdir "$STATE/busy"; exit 1; }
for package; do [[ $package != new-* ]] || echo >>"$STATE/$package"; done
rmdir "$STATE/busy"
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	for _, packages := range [][]string{{"new-a"}, {"new-b"}, {"new-a", "new-b"}} {
		group.Go(func() {
			command := exec.Command(filepath.Join(dir, "setup.sh"), packages...)
			command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "STATE="+dir)
			if out, err := command.CombinedOutput(); err != nil {
				t.Errorf("setup.sh %q: %v\n%s", packages, err, out)
			}
		})
	}
	group.Wait()
	for _, name := range []string{"new-a", "new-b"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != "\n" {
			t.Errorf("%s was installed %d times, want once, %v", name, len(text), err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "policy")); !os.IsNotExist(err) {
		t.Errorf("the policy is left: %v", err)
	}
}
