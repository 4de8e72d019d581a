// Package corefile checks the configuration of the cluster's DNS with the CoreDNS of the release's image.
package corefile

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"
)

const (
	program = "coredns"
	// timeout is for a check, which reads the file without serving, also on a VM without processor time to spare.
	timeout = 5 * time.Minute
)

// Check lets CoreDNS of an image (an OCI archive) check the Corefile of the ConfigMap coredns in a manifest. The error
// holds CoreDNS's message, and the line that it names.
func Check(ctx context.Context, manifest, image string) error {
	corefile, err := fromManifest(manifest)
	if err != nil {
		return err
	}
	coredns, err := fromImage(image)
	if err != nil {
		return fmt.Errorf("CoreDNS of image %s: %w", image, err)
	}
	defer func() { _ = coredns.Close() }()

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	command := exec.CommandContext(ctx, "/proc/self/fd/3", "-check") // the first of ExtraFiles
	command.ExtraFiles = []*os.File{coredns}
	command.Stdin = strings.NewReader(corefile)
	output, err := command.CombinedOutput()
	if exit := new(exec.ExitError); errors.As(err, &exit) && ctx.Err() == nil {
		message := strings.TrimSpace(string(output))
		return fmt.Errorf(
			"CoreDNS refuses its configuration: %s%s; correct coredns.extra_plugins, coredns.extra_server_blocks, "+
				"coredns.upstream or coredns.cache_seconds: nothing was applied, and CoreDNS runs with what it had",
			message, quotedLine(message, corefile),
		)
	}
	if err != nil {
		return fmt.Errorf("check the configuration of CoreDNS: %w", err)
	}
	return nil
}

// fromManifest returns the Corefile of the ConfigMap coredns.
func fromManifest(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	for decoder := yaml.NewDecoder(file); ; {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
			Data     map[string]any
		}
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return "", fmt.Errorf("%s has no ConfigMap coredns", name)
		} else if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if corefile, ok := object.Data["Corefile"].(string); ok && object.Kind == "ConfigMap" {
			return corefile, nil
		}
	}
}

// fromImage returns CoreDNS of an image as a file of memory, because it is executed and /tmp of a stemcell is noexec.
func fromImage(name string) (*os.File, error) {
	archive, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = archive.Close() }()
	for blobs := tar.NewReader(archive); ; {
		if _, err := blobs.Next(); errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("no layer has the file %s", program)
		} else if err != nil {
			return nil, err
		}
		layer := tar.NewReader(blobs)
		header, err := layer.Next() // fails for what is not a layer
		for ; err == nil; header, err = layer.Next() {
			if header.Typeflag == tar.TypeReg && path.Base(header.Name) == program {
				return inMemory(layer)
			}
		}
	}
}

func inMemory(content io.Reader) (*os.File, error) {
	descriptor, err := unix.MemfdCreate(program, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	file := os.NewFile(uintptr(descriptor), program)
	if _, err := io.Copy(file, content); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

var place = regexp.MustCompile(`Corefile:(\d+)`)

// quotedLine is the line that a message names, as text to add to it.
func quotedLine(message, corefile string) string {
	match := place.FindStringSubmatch(message)
	if match == nil {
		return ""
	}
	number, err := strconv.Atoi(match[1])
	lines := strings.Split(corefile, "\n")
	if err != nil || number < 1 || number > len(lines) {
		return ""
	}
	return fmt.Sprintf(" (line %d is %q)", number, strings.TrimSpace(lines[number-1]))
}
