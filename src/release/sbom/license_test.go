package sbom

import "testing"

func TestLicense(t *testing.T) {
	const mit = "Permission is hereby granted, free of charge, to any person obtaining a copy of this\nsoftware " +
		"The above copyright notice and this permission notice shall be\nincluded in all copies"
	const bsd = "Redistribution and use in source and binary forms, with or without modification, are permitted"
	for _, test := range []struct {
		name string
		want string
		text []string
	}{
		{"MIT over line ends", "MIT", []string{mit}},
		{"BSD with its third clause", "BSD-3-Clause", []string{bsd + " to endorse or promote products derived from " +
			"this software"}},
		{"BSD without", "BSD-2-Clause", []string{bsd}},
		{"Apache by reference", "Apache-2.0", []string{"Licensed under the Apache License, Version 2.0 (the " +
			"\"License\")"}},
		{"Apache in full", "Apache-2.0", []string{"Apache License\n   Version 2.0, January 2004\n"}},
		{"two files", "Apache-2.0 AND MIT", []string{mit, "Apache License\n Version 2.0, January 2004"}},
		{"one twice", "MIT", []string{mit, mit}},
		{"none", "", []string{"All rights reserved."}},
		{"no file", "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var texts []Text
			for _, content := range test.text {
				texts = append(texts, Text{File: "LICENSE", Content: content})
			}
			if got := License(texts); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestLicenseFiles(t *testing.T) {
	for name, want := range map[string]bool{
		"LICENSE": true, "License.txt": true, "LICENCE.md": true, //nolint:misspell // British projects
		"COPYING": true, "NOTICE": true, "LICENSE-APACHE": true, "UNLICENSE": true,
		"license_test": true, "README.md": false, "licensed": false, "copyist.txt": false,
	} {
		if got := licenseFile.MatchString(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
