// Package layout holds the rules of the code that neither the modules nor the linter can say.
package layout
