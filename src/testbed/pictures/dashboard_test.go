package pictures

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// TestDashboard draws the dashboard of the release with a Prometheus that has two lines of each expression but one.
func TestDashboard(t *testing.T) {
	content, err := os.ReadFile("../../../config/prometheus/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	to := time.Unix(1_800_000_000, 0)
	from := to.Add(-time.Hour)
	asked := 0
	query := func(_ context.Context, path string, data any) error {
		asked++
		kind, values, _ := strings.Cut(path, "?")
		parsed, err := url.ParseQuery(values)
		if err != nil {
			return err
		}
		if strings.Contains(parsed.Get("query"), "openstack") {
			return json.Unmarshal([]byte(`{"result": []}`), data)
		}
		value := fmt.Sprintf(`"value": [%d, "7200"]`, to.Unix())
		if kind == "query_range" {
			value = fmt.Sprintf(`"values": [[%d, "1"], [%d, "NaN"], [%d, "3"]]`,
				from.Unix(), from.Unix()+30, from.Unix()+60)
		}
		return json.Unmarshal([]byte(`{"result": [{"metric": {"instance": "one"}, `+value+`},
			{"metric": {"instance": "two"}, `+value+`}]}`), data)
	}
	svg, err := Dashboard(t.Context(), content, query, from, to)
	if err != nil {
		t.Fatal(err)
	}
	if asked < 20 {
		t.Errorf("%d expressions were asked for", asked)
	}
	for text, want := range map[string]int{
		">Next certificate expires<": 1, ">2.0 h<": 2, ">Space of the database<": 1, ">no data<": 2, ">one<": 5,
	} {
		if n := strings.Count(string(svg), text); n < want {
			t.Errorf("the picture has %q %d times, want at least %d", text, n, want)
		}
	}
	if _, err := Dashboard(t.Context(), []byte(`{"panels": [{"type": "pie", "targets": [{"expr": "up"}]}]}`), query,
		from, to); err == nil || !strings.Contains(err.Error(), `type "pie" is not drawn`) {
		t.Errorf("a panel of an unknown type: %v", err)
	}
}
