package sbom

import (
	"bytes"
	"slices"
	"testing"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// TestSPDX reads the SBOM with SPDX's own library, and checks the rules that the library does not: identifiers are
// unique and have allowed characters only, and relationships refer to elements that exist.
func TestSPDX(t *testing.T) {
	parts := []Part{
		{Name: "example.org/a_b", Version: "v1.0.0", Packages: []string{"one", "two"}, License: "MIT", Sum: "h1:x="},
		{Name: "example.org/a-b", Version: "v1.0.0", Packages: []string{"one"}, License: "MIT"},
		{Name: "libx-dev", Version: "1:2+b1", Debian: true, Packages: []string{"two"}, License: "LGPL-2.1-only"},
		{Name: standardLibrary, Version: "go1.26.8", Packages: []string{"one"}, License: "BSD-3-Clause"},
	}
	text, err := SPDX("example", parts)
	if err != nil {
		t.Fatal(err)
	}
	var document spdx.Document
	if err := spdxjson.ReadInto(bytes.NewReader(text), &document); err != nil {
		t.Fatal(err)
	}
	ids := map[common.ElementID]bool{document.SPDXIdentifier: true}
	var locators []string
	for _, p := range document.Packages {
		if ids[p.PackageSPDXIdentifier] || notInID.MatchString(string(p.PackageSPDXIdentifier)) {
			t.Errorf("identifier %s is a duplicate or has characters that are not allowed", p.PackageSPDXIdentifier)
		}
		ids[p.PackageSPDXIdentifier] = true
		for _, reference := range p.PackageExternalReferences {
			locators = append(locators, reference.Locator)
		}
	}
	contained := map[common.ElementID]int{}
	for _, r := range document.Relationships {
		if !ids[r.RefA.ElementRefID] || !ids[r.RefB.ElementRefID] {
			t.Errorf("%v refers to an element that does not exist", r)
		}
		contained[r.RefB.ElementRefID]++
	}
	if n := contained[elementID("Part", "example.org/a_b-v1.0.0")]; n != 2 {
		t.Errorf("example.org/a_b is contained in %d packages, want 2", n)
	}
	want := []string{
		"pkg:golang/example.org/a_b@v1.0.0", "pkg:golang/example.org/a-b@v1.0.0", "pkg:deb/debian/libx-dev@1%3A2%2Bb1",
		"pkg:golang/stdlib@1.26.8",
	}
	if !slices.Equal(locators, want) {
		t.Errorf("package URLs %v, want %v", locators, want)
	}
	again, err := SPDX("example", parts)
	if err != nil || !bytes.Equal(text, again) {
		t.Errorf("the same parts have a different SBOM: %v", err)
	}
}
