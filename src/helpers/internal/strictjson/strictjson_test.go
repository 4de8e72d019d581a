package strictjson

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-release/internal/duration"
)

type inner struct {
	Command string            `json:"command"`
	Wait    duration.Duration `json:"wait"`
}

type config struct {
	Name    string           `json:"name"`
	Count   int              `json:"count"`
	Inner   inner            `json:"inner"`
	List    []inner          `json:"list"`
	ByName  map[string]inner `json:"by_name"`
	Pointer *inner           `json:"pointer"`
	Hidden  string           `json:"-"`
}

func TestUnmarshal(t *testing.T) {
	got := config{Count: 7}
	err := Unmarshal(
		[]byte(`{"name":"n","count":null,"inner":{"wait":"5s"},"list":[{"command":"c"}],
			"by_name":{"a.b":{"command":"d"}}}`),
		&got,
	)
	if err != nil || got.Name != "n" || got.Count != 7 || got.Inner.Wait.String() != "5s" ||
		got.List[0].Command != "c" ||
		got.ByName["a.b"].Command != "d" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		content string
		want    []string
	}{
		"empty":          {" \n", []string{"empty"}},
		"not JSON":       {"{\n\"name\": x}", []string{"not JSON", "line 2"}},
		"ends early":     {`{"name": "n"`, []string{"not JSON"}},
		"not UTF-8":      {"{\"name\": \"\xff\"}", []string{"not UTF-8"}},
		"two values":     {`{} {}`, []string{"not JSON"}},
		"misspelled key": {`{"nmae": "n"}`, []string{`"nmae"`, "did you mean name?"}},
		"another case":   {`{"Name": "n"}`, []string{`"Name"`, "did you mean name?"}},
		"all unknown keys": {
			`{"xxxxxxxx": 1, "inner": {"comand": "c"}}`,
			[]string{`"xxxxxxxx"`, "known are name, count", `"inner.comand"`, "did you mean command?"},
		},
		"misspelled key in a list": {
			`{"list": [{}, {"comand": "c"}]}`,
			[]string{`list[1].comand`, "did you mean command?"},
		},
		"misspelled key in a map": {
			`{"by_name": {"x": {"comand": "c"}}}`,
			[]string{`by_name.x.comand`, "did you mean command?"},
		},
		"misspelled key, a pointer": {
			`{"pointer": {"comand": "c"}}`,
			[]string{`pointer.comand`, "did you mean command?"},
		},
		"hidden field":    {`{"Hidden": "h"}`, []string{`"Hidden"`}},
		"key given twice": {`{"name": "a", "name": "b"}`, []string{`"name"`}},
		"wrong type": {
			`{"inner": {"command": 3}}`,
			[]string{"inner.command", "want a string, found number"},
		},
		"a list for a map":       {`[]`, []string{"want a map, found array"}},
		"a duration's own words": {`{"inner": {"wait": "soon"}}`, []string{`"soon" is not a duration`}},
		"too large":              {`{"name": "` + strings.Repeat("x", MaxSize) + `"}`, []string{"larger than"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := Unmarshal([]byte(test.content), new(config))
			if err == nil {
				t.Fatal("want an error")
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want it to contain %q", err, part)
				}
			}
		})
	}
}

func TestReadFileNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := ReadFile(path, new(config)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: got %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"nmae": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadFile(path, new(config)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("wrong file: got %v", err)
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"list":[{"comand":1}]}`))
	f.Add([]byte(`{"by_name":{"a.b":{"c":1}}}`))
	f.Add([]byte(`{"a.b":{"c":1}}`))
	f.Fuzz(func(_ *testing.T, content []byte) {
		_ = Unmarshal(content, new(config)) // must not panic
	})
}
