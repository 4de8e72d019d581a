package kubetest

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// failures counts what a test reports.
type failures struct {
	testing.TB
	count int
}

func (*failures) Helper() {}

func (f *failures) Errorf(string, ...any) { f.count++ }

func TestMustForbid(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("use a claim"))
	for name, test := range map[string]struct {
		err    error
		words  []string
		failed int
	}{
		"forbidden":              {forbidden, nil, 0},
		"with the words":         {forbidden, []string{"pods", "use a claim"}, 0},
		"without one of them":    {forbidden, []string{"pods", "PersistentVolume"}, 1},
		"wrapped":                {fmt.Errorf("create: %w", forbidden), nil, 0},
		"another error with all": {errors.New("use a claim"), []string{"use a claim"}, 1},
		"no error":               {nil, nil, 1},
	} {
		f := &failures{TB: t}
		if MustForbid(f, name, test.err, test.words...); f.count != test.failed {
			t.Errorf("%s: %d failures, want %d", name, f.count, test.failed)
		}
	}
}
