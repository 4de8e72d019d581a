package faults

import (
	"slices"
	"testing"
)

func TestEven(t *testing.T) {
	for _, c := range []struct {
		counts []int
		even   bool
	}{
		{[]int{8, 8, 8}, true}, {[]int{3, 9, 12}, true}, {[]int{2, 10, 12}, false}, {[]int{0, 12, 12}, false},
		{[]int{0, 0, 0}, false},
	} {
		if err := even(c.counts); (err == nil) != c.even {
			t.Errorf("%d: %v", c.counts, err)
		}
	}
}

func TestToggleChanges(t *testing.T) {
	before := []string{"up", "-o", "ops-files/aws.yml"}
	c := &Cluster{deploy: before}
	c.toggleChanges()
	if want := []string{"up", "-o", "ops-files/aws.yml", "-o", changes}; !slices.Equal(c.deploy, want) {
		t.Errorf("got %q, want %q", c.deploy, want)
	}
	c.toggleChanges()
	if !slices.Equal(c.deploy, before) {
		t.Errorf("got %q, want %q", c.deploy, before)
	}
}
