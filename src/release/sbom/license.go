package sbom

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// debianLicenses are the licenses of the C libraries that are linked statically; their copyright files list those of
// every source file.
var debianLicenses = map[string]string{
	"libc6-dev":      "LGPL-2.1-or-later",
	"libgcc-12-dev":  "GPL-3.0-or-later WITH GCC-exception-3.1",
	"libseccomp-dev": "LGPL-2.1-only",
}

// copiesOfGo are modules without a license file whose files are copies of Go's own, under "the LICENSE file" of Go as
// each says at its top.
var copiesOfGo = []string{
	"github.com/MichaelTJones/walk", // path/filepath, in cloud-provider-openstack
}

// licenseFile matches the names of license and notice files.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|unlicense|notice|patents|copyright)([-._].*)?$`)

// kinds identifies licenses by phrases that only their texts have, in lower case with single spaces.
var kinds = []struct {
	id      string
	phrases []string // all must be present
	without []string // none must be present
}{
	{"Apache-2.0", []string{"apache license", "version 2.0, january 2004"}, nil},
	{"Apache-2.0", []string{"licensed under the apache license, version 2.0"}, []string{"version 2.0, january 2004"}},
	{"MPL-2.0", []string{"mozilla public license", "version 2.0", "each contributor hereby grants you"}, nil},
	{"LGPL-3.0-only", []string{"gnu lesser general public license version 3"}, nil},
	{
		"MIT",
		[]string{
			"permission is hereby granted, free of charge, to any person obtaining a copy",
			"the above copyright notice and this permission notice shall be included",
		},
		nil,
	},
	{
		"BSD-3-Clause",
		[]string{"redistribution and use in source and binary forms", "endorse or promote products derived from"},
		nil,
	},
	{
		"BSD-2-Clause",
		[]string{"redistribution and use in source and binary forms"},
		[]string{"endorse or promote products derived from"},
	},
	{
		"ISC",
		[]string{
			"permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is " +
				"hereby granted",
		},
		nil,
	},
	{
		"ISC",
		[]string{
			"permission to use, copy, modify, and distribute this software for any purpose with or without fee is " +
				"hereby granted",
		},
		nil,
	},
	{"CC0-1.0", []string{"cc0 1.0 universal"}, nil},
	{"CC-BY-SA-4.0", []string{"creative commons attribution-sharealike 4.0"}, nil},
	{"Unlicense", []string{"this is free and unencumbered software released into the public domain"}, nil},
	{"Zlib", []string{"this software is provided 'as-is', without any express or implied warranty"}, nil},
}

// License returns the SPDX expression of all licenses that are recognized in texts, joined by AND; empty if there is
// none.
func License(texts []Text) string {
	var found []string
	for _, text := range texts {
		plain := strings.Join(strings.Fields(strings.ToLower(text.Content)), " ")
		for _, kind := range kinds {
			missing := func(phrase string) bool { return !strings.Contains(plain, phrase) }
			present := func(phrase string) bool { return strings.Contains(plain, phrase) }
			if !slices.ContainsFunc(kind.phrases, missing) && !slices.ContainsFunc(kind.without, present) {
				found = append(found, kind.id)
			}
		}
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), " AND ")
}

// licenseTexts reads the license and notice files in the top folder of a module.
func licenseTexts(dir string) ([]Text, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var texts []Text
	for _, file := range files {
		if !file.Type().IsRegular() || !licenseFile.MatchString(file.Name()) || filepath.Ext(file.Name()) == ".go" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return nil, err
		}
		texts = append(texts, Text{File: file.Name(), Content: string(content)})
	}
	return texts, nil
}

// ThirdParty is the listing for people: a table of the parts, then each license text once, with the parts that it
// covers.
func ThirdParty(parts []Part) []byte {
	var out bytes.Buffer
	_, _ = fmt.Fprintf(
		&out, "Third-party code in this release\n\n%d parts, as recorded in the programs themselves.\n\n", len(parts),
	)
	for _, part := range parts {
		_, _ = fmt.Fprintf(
			&out, "%s %s\n    %s, in %s\n", part.Name, part.Version, part.License, strings.Join(part.Packages, ", "),
		)
	}
	covers := map[string][]string{}
	for _, part := range parts {
		for _, text := range part.Texts {
			content := strings.TrimSpace(strings.ReplaceAll(text.Content, "\r\n", "\n"))
			covers[content] = append(covers[content], fmt.Sprintf("%s %s (%s)", part.Name, part.Version, text.File))
		}
	}
	type covered struct {
		content string
		parts   []string
	}
	var texts []covered
	for content, parts := range covers {
		texts = append(texts, covered{content, parts})
	}
	slices.SortFunc(texts, func(a, b covered) int { return cmp.Compare(a.parts[0], b.parts[0]) })
	for _, text := range texts {
		_, _ = fmt.Fprintf(
			&out, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(text.parts, "\n"), text.content,
		)
	}
	return out.Bytes()
}
