package external

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"kubernetes-release/testbed/lab/vm"
)

// incomplete ends the name of a stemcell that is being unpacked.
const incomplete = ".incomplete"

// image returns the directory of a stemcell.
func (p *CPI) image(cid string) (string, error) {
	dir := p.path("stemcells", filepath.Base(cid))
	if _, err := os.Stat(filepath.Join(dir, agentFile)); err != nil {
		return "", errorf(cloudError, "there is no stemcell '%s' in the lab: run bosh upload-stemcell --fix", cid)
	}
	return dir, nil
}

// createStemcell unpacks the root file system of a stemcell for warden. One whose answer was lost stays until the lab
// is removed.
func (p *CPI) createStemcell(ctx context.Context, c *call) (any, error) {
	release, err := p.lock(ctx, "stemcells")
	if err != nil {
		return nil, err
	}
	defer release()
	interrupted, _ := filepath.Glob(p.path("stemcells", "*"+incomplete))
	for _, dir := range interrupted {
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
	}
	cid := "stemcell-" + strings.ToLower(rand.Text())
	dir := p.path("stemcells", cid)
	if err := unpackImage(ctx, c.ID, dir+incomplete); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir+incomplete))
	}
	return cid, os.Rename(dir+incomplete, dir)
}

func unpackImage(ctx context.Context, tarball, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	err := run(ctx, "tar", "--extract", "--gzip", "--numeric-owner", "--preserve-permissions", "--xattrs",
		"--xattrs-include=*", "--file", tarball, "--directory", dir)
	if err != nil {
		return errorf(cloudError, "the stemcell's image %s cannot be unpacked; it must be a gzipped tar archive of a "+
			"root file system, as in a stemcell for warden: %v", tarball, err)
	}
	for _, file := range []string{agentProgram, agentFile} {
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil || !info.Mode().IsRegular() {
			return errorf(cloudError, "the stemcell's image has no %s, so a Director could not reach its VMs: use a "+
				"stemcell for warden, which has BOSH's agent", file)
		}
	}
	return nil
}

// run runs a program. The error has the last line of its output.
func run(ctx context.Context, program string, arguments ...string) error {
	output, err := exec.CommandContext(ctx, program, arguments...).CombinedOutput()
	if err != nil {
		text := strings.TrimSpace(string(output))
		return fmt.Errorf("%s: %w: %s", program, err, text[strings.LastIndexByte(text, '\n')+1:])
	}
	return nil
}

// deleteStemcell removes a stemcell, if it exists and no VM has it.
func (p *CPI) deleteStemcell(_ context.Context, c *call) (any, error) {
	if filepath.Base(c.ID) != c.ID || !strings.HasPrefix(c.ID, "stemcell-") {
		return nil, errorf(cloudError, "'%s' is not the id of a stemcell", c.ID)
	}
	dir := p.path("stemcells", c.ID)
	machines, err := p.machines()
	if err != nil {
		return nil, err
	}
	for _, m := range machines {
		if v, err := vm.Open(p.StateDir, m.Name); err == nil && v.Spec.Image == dir {
			return nil, errorf(cloudError, "stemcell %s is in use by VM %s", c.ID, m.CID)
		}
	}
	return nil, os.RemoveAll(dir)
}
