package duration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestJSON(t *testing.T) {
	var d Duration
	if err := json.Unmarshal([]byte(`"1m30s"`), &d); err != nil || d.Std() != 90*time.Second {
		t.Fatalf("got %s, %v", d, err)
	}
	if text, err := json.Marshal(d); err != nil || string(text) != `"1m30s"` {
		t.Errorf("got %s, %v", text, err)
	}
}

func TestRefusals(t *testing.T) {
	for _, text := range []string{`30`, `"30"`, `"soon"`, `true`, `""`} {
		d := Duration(time.Second)
		err := json.Unmarshal([]byte(text), &d)
		if err == nil || !strings.Contains(err.Error(), strings.Trim(text, `"`)) || d.Std() != time.Second {
			t.Errorf("%s: got %s, %v; want an error that names it", text, d, err)
		}
	}
}
