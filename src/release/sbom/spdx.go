package boshrelease

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// The parts of SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/) that the bill uses.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		DataLicense   string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID               string          `json:"SPDXID"`
		Name             string          `json:"name"`
		Version          string          `json:"versionInfo,omitempty"`
		DownloadLocation string          `json:"downloadLocation"`
		FilesAnalyzed    bool            `json:"filesAnalyzed"`
		LicenceConcluded string          `json:"licenseConcluded"`
		LicenceDeclared  string          `json:"licenseDeclared"`
		Copyright        string          `json:"copyrightText"`
		Comment          string          `json:"comment,omitempty"`
		References       []spdxReference `json:"externalRefs,omitempty"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const unknown = "NOASSERTION"

// spdx is the bill for programs, an SPDX 2.3 document: the release contains its packages, and these contain the parts.
// Its time is fixed and its namespace follows from its content, so that the same release has the same bill.
func spdx(release string, parts []Part) ([]byte, error) {
	root := spdxID("Release", release)
	document := spdxDocument{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: release + " BOSH release",
		Creation: spdxCreation{Created: "1970-01-01T00:00:00Z", Creators: []string{"Tool: kubernetes-release"}},
		Packages: []spdxPackage{bare(root, release)},
		Relationships: []spdxRelationship{
			{"SPDXRef-DOCUMENT", "DESCRIBES", root},
		},
	}
	var packages []string
	for _, part := range parts {
		packages = append(packages, part.Packages...)
	}
	slices.Sort(packages)
	for _, name := range slices.Compact(packages) {
		id := spdxID("Package", name)
		document.Packages = append(document.Packages, bare(id, name))
		document.Relationships = append(document.Relationships, spdxRelationship{root, "CONTAINS", id})
	}
	for _, part := range parts {
		id := spdxID("Part", part.Name+"-"+part.Version)
		p := bare(id, part.Name)
		p.Version, p.LicenceDeclared, p.LicenceConcluded = part.Version, part.Licence, part.Licence
		p.References = []spdxReference{{"PACKAGE-MANAGER", "purl", purl(part)}}
		if part.Sum != "" {
			p.Comment = "Go checksum database: " + part.Sum
		}
		document.Packages = append(document.Packages, p)
		for _, name := range part.Packages {
			document.Relationships = append(document.Relationships, spdxRelationship{spdxID("Package", name), "CONTAINS", id})
		}
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(text)
	document.Namespace = "urn:kubernetes-release:sbom:" + hex.EncodeToString(digest[:])
	text, err = json.MarshalIndent(document, "", " ")
	return append(text, '\n'), err
}

func bare(id, name string) spdxPackage {
	return spdxPackage{
		ID: id, Name: name, DownloadLocation: unknown, LicenceConcluded: unknown, LicenceDeclared: unknown, Copyright: unknown,
	}
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// spdxID makes an identifier of a name. Names that differ only in what identifiers can't hold get different ones.
func spdxID(kind, name string) string {
	id := notInID.ReplaceAllString(name, "-")
	if id != name {
		digest := sha256.Sum256([]byte(name))
		id += "-" + hex.EncodeToString(digest[:4])
	}
	return "SPDXRef-" + kind + "-" + id
}

// purl is a part's package URL (https://github.com/package-url/purl-spec), by which scanners look it up.
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

// releaseName reads the release's name from config/final.yml.
func releaseName(dir string) (string, error) {
	file := filepath.Join(dir, "config", "final.yml")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var config struct {
		Name string `yaml:"name"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	if config.Name == "" {
		return "", fmt.Errorf("%s has no name; it names the release", file)
	}
	return config.Name, nil
}
