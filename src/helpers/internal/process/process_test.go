package process

import (
	"os"
	"os/exec"
	"testing"
)

func TestReadOfThisProcess(t *testing.T) {
	stat, err := Read(os.Getpid())
	if err != nil || stat.Started == 0 || stat.Parent != os.Getppid() || stat.Threads < 1 || stat.Ended() {
		t.Errorf("got %+v, %v", stat, err)
	}
	if !Runs(os.Getpid(), stat.Started) || Runs(os.Getpid(), stat.Started+1) {
		t.Error("want this process to run, and another start time to be another process")
	}
}

func TestZombieHasEnded(t *testing.T) {
	child := exec.Command("cat")
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	before, err := Read(child.Process.Pid)
	if err != nil || before.Ended() {
		t.Fatalf("while it runs: %+v, %v", before, err)
	}
	_ = input.Close()
	for stat := before; !stat.Ended(); { // not waited for, so it becomes a zombie
		if stat, err = Read(child.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if Runs(child.Process.Pid, before.Started) {
		t.Error("a zombie is reported as running")
	}
	if stat, err := Living(child.Process.Pid); err == nil {
		t.Errorf("a zombie is reported as living: %+v", stat)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(child.Process.Pid); err == nil {
		t.Error("want an error for a process that is gone")
	}
}

func TestNamesMayHoldParentheses(t *testing.T) {
	path := t.TempDir() + "/a) S 1 (b"
	cat, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(cat, path); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(path, "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	if stat, err := Read(child.Process.Pid); err != nil || stat.Parent != os.Getpid() {
		t.Errorf("got %+v, %v; want parent %d", stat, err, os.Getpid())
	}
}

func TestNoProcess(t *testing.T) {
	for _, pid := range []int{0, -1, 1 << 30} {
		if _, err := Read(pid); err == nil {
			t.Errorf("want an error for process %d", pid)
		}
	}
}
