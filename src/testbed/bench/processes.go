package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"al.essio.dev/pkg/shellescape"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/testbed/lab/vm"
)

// command is a program as it runs in a VM, with the command line that the launcher built.
type command struct {
	name        string
	uid, gid    int
	dir         string
	argv        []string
	environment []string
}

// listCommands prints a line for each program that a pidfile names, under bpm the child of the process in it: pidfile,
// uid, gid, and in base64 the working directory, and the command line and environment as in /proc.
const listCommands = `
for file in "$1"/bpm/*/*.pid /run/kubernetes-bosh/*/*.pid; do
  [ -s "$file" ] || continue
  pid=$(tr -d '[:space:]' <"$file")
  [[ $file != "$1"/bpm/* ]] || pid=$(pgrep --oldest --parent "$pid")
  process=/proc/$pid
  echo "$file" $(stat -c '%u %g' "$process") $(readlink -n "$process/cwd" | base64 -w0) \
    $(base64 -w0 "$process/cmdline") $(base64 -w0 "$process/environ")
done`

// commandsOf returns the programs that run in a VM, named after their pidfiles.
func commandsOf(ctx context.Context, v *vm.VM) ([]command, error) {
	output, err := inVM(ctx, v, listCommands, bosh.DefaultRoot.Run(""))
	if err != nil {
		return nil, err
	}
	return parseCommands(output)
}

func parseCommands(output []byte) ([]command, error) {
	var list []command
	scanner := bufio.NewScanner(bytes.NewReader(output))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		c, err := parseCommand(scanner.Text())
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", scanner.Text(), err)
		}
		list = append(list, c)
	}
	return list, scanner.Err()
}

func parseCommand(line string) (command, error) {
	fields := strings.Fields(line)
	if len(fields) != 6 {
		return command{}, fmt.Errorf(
			"%d fields, want 6: pidfile, uid, gid, directory, command line, environment", len(fields),
		)
	}
	c := command{name: strings.TrimSuffix(path.Base(fields[0]), ".pid")}
	var err error
	if c.uid, err = strconv.Atoi(fields[1]); err != nil {
		return command{}, err
	}
	if c.gid, err = strconv.Atoi(fields[2]); err != nil {
		return command{}, err
	}
	decoded := make([][]string, 0, 3)
	for _, field := range fields[3:] {
		text, err := base64.StdEncoding.DecodeString(field)
		if err != nil {
			return command{}, err
		}
		decoded = append(decoded, strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"))
	}
	c.dir, c.argv, c.environment = decoded[0][0], decoded[1], decoded[2]
	return c, nil
}

// joinBefore returns the command that gets a kubelet its certificate, as the setup of the job does:
// with kubelet's user and environment, which names the simulated AWS that the proof is signed for.
func joinBefore(commands []command) []command {
	var joins []command
	for _, c := range commands {
		if c.name == "kubelet" {
			c.name = "join"
			c.argv = []string{
				bosh.DefaultRoot.Package("helpers", "bin/kube-tools"), "join",
				"--config=" + bosh.DefaultRoot.Job("kubelet", "config/join.json"),
			}
			joins = append(joins, c)
		}
	}
	return joins
}

// script is the script that a person would write to start the program by hand.
func (c command) script() string {
	words := make([]string, 0, len(c.environment)+len(c.argv))
	for _, word := range slices.Concat(c.environment, c.argv) {
		words = append(words, "  "+shellescape.Quote(word))
	}
	// kubelet-signer's user has no entry in /etc/passwd, and is a member of vcap.
	const script = `#!/bin/bash
cd %s
groups=(--init-groups)
getent passwd %[2]d >/dev/null || groups=(--groups vcap)
exec setpriv --reuid %[2]d --regid %[3]d "${groups[@]}" env -i \
%[4]s
`
	return fmt.Sprintf(script, shellescape.Quote(c.dir), c.uid, c.gid, strings.Join(words, " \\\n"))
}

// memory is a process's memory in bytes: its resident pages (RSS), and the same with shared pages divided by the number
// of processes that share them (PSS).
type memory struct {
	program  string
	pss, rss int64
}

// listMemory prints a line for each process: its program, PSS and RSS in kB.
const listMemory = `
for process in /proc/[0-9]*; do
  [ "${process#/proc/}" != $$ ] && read -r -d '' program <"$process/cmdline" 2>/dev/null &&
    awk -v program="$program" '$1 == "Pss:" { pss = $2 } $1 == "Rss:" { rss = $2 }
      END { if (rss) print program, pss, rss }' \
      "$process/smaps_rollup" 2>/dev/null
done; true`

// memoryOf measures the processes of a VM.
func memoryOf(ctx context.Context, v *vm.VM) ([]memory, error) {
	output, err := inVM(ctx, v, listMemory)
	if err != nil {
		return nil, err
	}
	return parseMemory(output)
}

func parseMemory(output []byte) ([]memory, error) {
	var list []memory
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("line %q: want program, PSS, RSS", line)
		}
		pss, err := strconv.ParseInt(fields[len(fields)-2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %q: PSS: %w", line, err)
		}
		rss, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %q: RSS: %w", line, err)
		}
		list = append(list, memory{program: fields[0], pss: pss << 10, rss: rss << 10})
	}
	return list, nil
}

// owner is what a program belongs to.
type owner string

// Owners of processes in a VM.
const (
	ownOwner        owner = "ours"
	kubernetesOwner owner = "Kubernetes"
	upstreamOwner   owner = "other components"
	labOwner        owner = "lab"
)

// owners maps prefixes of the programs' paths to owners; the first match counts. Programs in containers have paths of
// their own.
var owners = []struct {
	prefix string
	owner  owner
}{
	{bosh.DefaultRoot.Package("helpers") + "/", ownOwner},
	{bosh.DefaultRoot.Package("kubernetes") + "/", kubernetesOwner},
	{bosh.DefaultRoot.Package("cloud-provider-aws") + "/", kubernetesOwner},
	{bosh.DefaultRoot.Package("ecr-credential-provider") + "/", kubernetesOwner},
	{string(bosh.DefaultRoot) + "/", upstreamOwner},
	{"/pause", upstreamOwner},
	{"/coredns", upstreamOwner},
}

func ownerOf(program string) owner {
	for _, o := range owners {
		if strings.HasPrefix(program, o.prefix) {
			return o.owner
		}
	}
	return labOwner
}

// inVM runs a shell script with arguments in a VM and returns its output.
func inVM(ctx context.Context, v *vm.VM, script string, arguments ...string) ([]byte, error) {
	var out, problems bytes.Buffer
	err := v.Run(
		ctx, append([]string{"bash", "-c", script, "bash"}, arguments...),
		vm.RunOptions{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &problems},
	)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(problems.String()))
	}
	return out.Bytes(), nil
}
