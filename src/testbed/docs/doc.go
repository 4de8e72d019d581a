// Package docs tests what the repository's documents say: links resolve, every document can be reached from the README,
// the commands that it shows work, and tables agree with the files that they describe.
package docs
