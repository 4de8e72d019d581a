// Package vulnerabilities finds known vulnerabilities of the modules that the release's programs contain.
package vulnerabilities

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/vuln/scan"
)

// Finding is a known vulnerability of a module that programs contain.
type Finding struct {
	// ID is the one in the Go vulnerability database, such as GO-2026-4321.
	ID string
	// Aliases are its IDs elsewhere, such as CVE-2026-54321.
	Aliases []string
	Summary string
	// Module is a module's path, or stdlib.
	Module  string
	Version string
	// Fixed is the version with the fix; "" if there is none.
	Fixed string
	// Programs are the names of those with the module in this version, in the order of the archive.
	Programs []string
}

// Report is what is known of the programs in an archive.
type Report struct {
	// Programs is how many Go programs were looked at.
	Programs int
	// Findings are sorted by ID, module and version.
	Findings []Finding
}

// Look compares the modules of all Go programs in an archive, such as the tarball of a release, with a Go vulnerability
// database (https://go.dev/doc/security/vuln/database), an http, https or file URL. A program does not say which part
// of a module it uses, so a finding may not concern it. An archive without programs is an error.
func Look(ctx context.Context, archive, database string) (Report, error) {
	if err := checkDatabase(database); err != nil {
		return Report{}, err
	}
	file, err := os.Open(archive)
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = file.Close() }()
	var report Report
	err = eachProgram(ctx, archive, file, func(name, program string) error {
		report.Programs++
		found, err := look(ctx, program, database)
		if err != nil {
			return fmt.Errorf("compare %s with the database %s: %w", name, database, err)
		}
		for _, f := range found {
			report.add(f, name)
		}
		return nil
	})
	if err != nil {
		return Report{}, fmt.Errorf("%s: %w", archive, err)
	}
	if report.Programs == 0 {
		return Report{}, fmt.Errorf("%s: it contains no Go program; name the tarball of a release", archive)
	}
	slices.SortFunc(report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Module, b.Module), cmp.Compare(a.Version, b.Version))
	})
	return report, nil
}

// checkDatabase refuses a folder without an index. govulncheck takes any folder for a database, also an empty one, in
// which nothing is found (internal/client/client.go in golang.org/x/vuln).
func checkDatabase(database string) error {
	dir, isFolder := strings.CutPrefix(database, "file://")
	if !isFolder {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "index", "db.json")); err != nil {
		return fmt.Errorf("database %s must be a copy of a Go vulnerability database: %w", database, err)
	}
	return nil
}

// add adds a finding in a program.
func (r *Report) add(f Finding, program string) {
	i := slices.IndexFunc(r.Findings, func(other Finding) bool {
		return f.ID == other.ID && f.Module == other.Module && f.Version == other.Version
	})
	if i < 0 {
		i, r.Findings = len(r.Findings), append(r.Findings, f)
	}
	if !slices.Contains(r.Findings[i].Programs, program) {
		r.Findings[i].Programs = append(r.Findings[i].Programs, program)
	}
}

// message is one of govulncheck's JSON messages, as far as it matters here (internal/govulncheck/govulncheck.go in
// golang.org/x/vuln). Entries of the database come before the findings that name them.
type message struct {
	OSV *struct {
		ID      string   `json:"id"`
		Aliases []string `json:"aliases"`
		Summary string   `json:"summary"`
	} `json:"osv"`
	Finding *struct {
		OSV   string `json:"osv"`
		Fixed string `json:"fixed_version"`
		Trace []struct {
			Module  string `json:"module"`
			Version string `json:"version"`
		} `json:"trace"`
	} `json:"finding"`
}

// look returns the findings in one program.
func look(ctx context.Context, program, database string) ([]Finding, error) {
	var stdout, stderr bytes.Buffer
	// Modules only: finer levels require symbols, which our programs do not have.
	command := scan.Command(ctx, "-mode=binary", "-scan=module", "-format=json", "-db="+database, program)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Start(); err != nil {
		return nil, err
	}
	if err := command.Wait(); err != nil {
		return nil, errors.New(strings.TrimSpace(err.Error() + " " + stderr.String()))
	}
	entries := map[string]Finding{}
	var found []Finding
	for messages := json.NewDecoder(&stdout); ; {
		var m message
		if err := messages.Decode(&m); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		switch {
		case m.OSV != nil:
			entries[m.OSV.ID] = Finding{ID: m.OSV.ID, Aliases: m.OSV.Aliases, Summary: m.OSV.Summary}
		case m.Finding != nil && len(m.Finding.Trace) > 0:
			f := entries[m.Finding.OSV]
			f.ID, f.Fixed = m.Finding.OSV, m.Finding.Fixed
			f.Module, f.Version = m.Finding.Trace[0].Module, m.Finding.Trace[0].Version
			found = append(found, f)
		}
	}
}
