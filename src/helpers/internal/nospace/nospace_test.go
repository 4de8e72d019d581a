package nospace

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	const refusal = "create namespace: etcdserver: mvcc: database space exceeded"
	once := Explain(fmt.Errorf("create namespace: %w", errors.New("etcdserver: mvcc: database space exceeded")))
	if !errors.Is(once, Err) || !strings.Contains(once.Error(), refusal) ||
		!strings.Contains(once.Error(), "run the errand") {
		t.Errorf("explained: %v", once)
	}
	if twice := Explain(once); !errors.Is(twice, Err) || twice.Error() != once.Error() {
		t.Errorf("explained twice: %v", twice)
	}
	other := errors.New("connection refused")
	if got := Explain(other); got != other { //nolint:errorlint // it must be the same
		t.Errorf("%v", got)
	}
	if err := Explain(nil); err != nil {
		t.Error(err)
	}
}
