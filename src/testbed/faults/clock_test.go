package faults

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv("PRINT_TIME") != "" {
		printTime()
		return
	}
	os.Exit(m.Run())
}

// printTime prints the time, and how much time has passed by the monotonic clock, on several threads.
func printTime() {
	for range 2 {
		go func() {
			for {
				_ = time.Now()
			}
		}()
	}
	for started := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		fmt.Println(time.Now().Unix(), int(time.Since(started).Seconds()))
	}
}

func TestClockOfOneProcessJumps(t *testing.T) {
	if os.Getuid() != 0 || runtime.GOARCH != "amd64" {
		t.Skip("changing another process's memory requires root, and amd64")
	}
	for name, program := range map[string][]string{
		"Go":   {os.Args[0]},
		"libc": {"perl", "-e", `$| = 1; while (1) { print time, " 0\n"; select undef, undef, undef, 0.01 }`},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(program[0], program[1:]...)
			command.Env = append(os.Environ(), "PRINT_TIME=1")
			output, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = command.Process.Kill(); _ = command.Wait() }()
			lines := bufio.NewScanner(output)
			c := newClock(func() ([]int, error) { return []int{command.Process.Pid}, nil })
			for _, offset := range []time.Duration{0, time.Hour, -time.Hour, 0} {
				if err := c.jump(offset); err != nil {
					t.Fatal(err)
				}
				awaitOffset(t, lines, offset)
			}
			if err := c.jump(time.Hour); err != nil {
				t.Fatal(err)
			}
			if err := c.stop(); err != nil {
				t.Fatal(err)
			}
			awaitOffset(t, lines, 0)
		})
	}
}

// awaitOffset reads until the process has that time, which it has within a minute's accuracy from then on.
func awaitOffset(t *testing.T, lines *bufio.Scanner, offset time.Duration) {
	t.Helper()
	var got string
	for range 1000 {
		if !lines.Scan() {
			t.Fatalf("the process has ended; its last line was %q", got)
		}
		got = lines.Text()
		var seconds, passed int64
		if _, err := fmt.Sscan(got, &seconds, &passed); err != nil {
			t.Fatal(err)
		}
		if passed > 600 {
			t.Fatalf("the monotonic clock has jumped: %q", got)
		}
		if off := seconds - time.Now().Add(offset).Unix(); off > -60 && off < 60 {
			return
		}
	}
	t.Fatalf(
		"the process prints %q, want an offset of %s from %s", got, offset, strconv.FormatInt(time.Now().Unix(), 10),
	)
}
