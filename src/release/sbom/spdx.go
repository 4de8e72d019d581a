package sbom

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// unknown is SPDX's value for what nobody has determined.
const unknown = "NOASSERTION"

// SPDX returns the SBOM, an SPDX 2.3 document in JSON: the release contains its packages, and these contain the parts.
// Its time is fixed and its namespace is derived from its content, so that the same release has the same SBOM.
func SPDX(release string, parts []Part) ([]byte, error) {
	root := elementID("Release", release)
	document := &spdx.Document{
		SPDXVersion:    spdx.Version,
		DataLicense:    spdx.DataLicense,
		SPDXIdentifier: "DOCUMENT",
		DocumentName:   release + " BOSH release",
		CreationInfo: &spdx.CreationInfo{
			Created:  "1970-01-01T00:00:00Z",
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "kubernetes-release"}},
		},
	}
	add := func(p *spdx.Package, relationship string, parents ...common.ElementID) {
		document.Packages = append(document.Packages, p)
		for _, parent := range parents {
			document.Relationships = append(document.Relationships, &spdx.Relationship{
				RefA:         common.MakeDocElementID("", string(parent)),
				RefB:         common.MakeDocElementID("", string(p.PackageSPDXIdentifier)),
				Relationship: relationship,
			})
		}
	}
	add(newPackage(root, release), common.TypeRelationshipDescribe, document.SPDXIdentifier)
	for _, name := range packageNames(parts) {
		add(newPackage(elementID("Package", name), name), common.TypeRelationshipContains, root)
	}
	for _, part := range parts {
		var parents []common.ElementID
		for _, name := range part.Packages {
			parents = append(parents, elementID("Package", name))
		}
		add(partPackage(part), common.TypeRelationshipContains, parents...)
	}
	content, err := encode(document)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(content)
	document.DocumentNamespace = "urn:kubernetes-release:sbom:" + hex.EncodeToString(digest[:])
	return encode(document)
}

func encode(document *spdx.Document) ([]byte, error) {
	var out bytes.Buffer
	err := spdxjson.Write(document, &out, spdxjson.Indent(" "))
	return out.Bytes(), err
}

// packageNames returns the sorted names of the release's packages that include parts.
func packageNames(parts []Part) []string {
	var names []string
	for _, part := range parts {
		names = append(names, part.Packages...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func newPackage(id common.ElementID, name string) *spdx.Package {
	return &spdx.Package{
		PackageSPDXIdentifier: id, PackageName: name, PackageDownloadLocation: unknown,
		PackageLicenseConcluded: unknown, PackageLicenseDeclared: unknown, PackageCopyrightText: unknown,
	}
}

func partPackage(part Part) *spdx.Package {
	p := newPackage(elementID("Part", part.Name+"-"+part.Version), part.Name)
	p.PackageVersion, p.PackageLicenseDeclared, p.PackageLicenseConcluded = part.Version, part.License, part.License
	p.PackageExternalReferences = []*spdx.PackageExternalReference{
		{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl(part)},
	}
	if part.Sum != "" {
		p.PackageComment = "Go checksum database: " + part.Sum
	}
	return p
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// elementID derives an identifier from a name. Names that differ only in characters that identifiers cannot have get
// different ones.
func elementID(kind, name string) common.ElementID {
	id := notInID.ReplaceAllString(name, "-")
	if id != name {
		digest := sha256.Sum256([]byte(name))
		id += "-" + hex.EncodeToString(digest[:4])
	}
	return common.ElementID(kind + "-" + id)
}

// purl is a part's package URL (https://github.com/package-url/purl-spec), by which scanners identify it.
func purl(part Part) string {
	switch {
	case part.Debian:
		return fmt.Sprintf("pkg:deb/debian/%s@%s", part.Name, url.QueryEscape(part.Version))
	case part.Name == standardLibrary:
		return "pkg:golang/stdlib@" + strings.TrimPrefix(part.Version, "go")
	default:
		return fmt.Sprintf("pkg:golang/%s@%s", part.Name, url.QueryEscape(part.Version))
	}
}
