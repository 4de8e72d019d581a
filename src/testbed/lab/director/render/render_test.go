package render

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// renderOne renders a template and returns the result or the error message.
func renderOne(t *testing.T, text string, jobContext map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "monit"), "")
	writeFile(t, filepath.Join(dir, "templates", "t.erb"), text)
	rendered, failures, err := Jobs(context.Background(), []Job{{
		Name: "job", Dir: dir, Templates: map[string]string{"t.erb": "config/t"}, Context: jobContext,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if failures[0] != nil {
		return failures[0].Error()
	}
	return string(rendered[0].Files["config/t"])
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func exampleContext() map[string]any {
	return map[string]any{
		"deployment": "d", "name": "web", "id": "11-22", "index": 3, "az": "z1", "bootstrap": true,
		"address": "10.0.0.5", "ip": "10.0.0.5", "dns_domain_name": "bosh", "persistent_disk": 1024,
		"job":      map[string]any{"name": "web"},
		"networks": map[string]any{"default": map[string]any{"ip": "10.0.0.5", "netmask": "255.255.255.0"}},
		"properties": map[string]any{
			"a": map[string]any{"b": "B", "f": false, "n": nil}, "list": []any{"x", map[string]any{"k": "v"}},
		},
		"links": map[string]any{
			"db": map[string]any{
				"domain": "db.default.d.bosh", "az_numbers": map[string]any{"z1": 1},
				"properties": map[string]any{"port": 5432},
				"instances": []any{
					map[string]any{
						"name":      "db",
						"id":        "aa",
						"index":     0,
						"az":        "z1",
						"address":   "10.0.0.9",
						"bootstrap": true,
					},
				},
			},
		},
	}
}

func TestTemplateSemantics(t *testing.T) {
	for _, c := range []struct{ name, template, want string }{
		{"p", `<%= p("a.b") %>`, "B"},
		{"p false is a value", `<%= p("a.f") %>`, "false"},
		{"p default", `<%= p("a.x", "dflt") %>`, "dflt"},
		{"p nil default", `<%= p("a.x", nil).inspect %>`, "nil"},
		{"p of several names", `<%= p(["a.x", "a.b"]) %>`, "B"},
		{"p of several names, none", `<%= p(["a.x", "a.y"], "z") %>`, "z"},
		{"p missing", "\n<%= p('a.x') %>", `Error filling in template 't.erb' (line 2: Can't find property '["a.x"]')`},
		{"p nil is missing", `<%= p("a.n") %>`, `Can't find property '["a.n"]'`},
		{"if_p", `<% if_p("a.b") do |v| %><%= v %><% end %>`, "B"},
		{"if_p of two", `<% if_p("a.b", "a.f") do |v, w| %><%= v %><%= w %><% end %>`, "Bfalse"},
		{"if_p else", `<% if_p("a.x") do %>y<% end.else do %>n<% end %>`, "n"},
		{"if_p taken, else skipped", `<% if_p("a.b") do %>y<% end.else do %>n<% end %>`, "y"},
		{"else_if_p", `<% if_p("a.x") do %>1<% end.else_if_p("a.b") do |v| %><%= v %><% end.else do %>3<% end %>`, "B"},
		{"else_if_link", `<% if_p("a.x") do %>1<% end.else_if_link("db") do |l| %><%= l.p("port") %><% end %>`, "5432"},
		{"properties", `<%= properties.a.b %><%= properties.list[1].k %>`, "Bv"},
		{"unknown property object", `<%= properties.nope.inspect %>`, "nil"},
		{"spec",
			`<%= [spec.deployment, spec.name, spec.id, spec.index, spec.az, spec.bootstrap, spec.ip, spec.address, ` +
				`spec.persistent_disk].join(",") %>`,
			"d,web,11-22,3,z1,true,10.0.0.5,10.0.0.5,1024"},
		{"spec.networks", `<%= spec.networks.default.ip %>`, "10.0.0.5"},
		{
			"first network by methods", `<%= spec.networks.send(spec.networks.methods(false).first).netmask %>`,
			"255.255.255.0",
		},
		{"name and index", `<%= name %>/<%= index %>`, "web/3"},
		{"link p", `<%= link("db").p("port") %>`, "5432"},
		{"link p missing", `<%= link("db").p("user") %>`, `Can't find property '["user"]'`},
		{
			"link instances",
			`<%= link("db").instances.map { |i| [i.name, i.id, i.index, i.az, i.address, i.bootstrap].join(":") ` +
				`}.join %>`,
			"db:aa:0:z1:10.0.0.9:true",
		},
		{"link instance p", `<%= link("db").instances.first.p("port") %>`, "5432"},
		{"link if_p", `<% link("db").if_p("user") do %>y<% end.else do %>n<% end %>`, "n"},
		{"link address", `<%= link("db").address %>`, "q-s0.db.default.d.bosh"},
		{
			"link address by criteria", `<%= link("db").address(azs: ["z1"], status: "healthy") %>`,
			"q-a1s3.db.default.d.bosh",
		},
		{"link unknown", `<%= link("cache") %>`, "Can't find link 'cache'"},
		{"if_link", `<% if_link("db") do |l| %><%= l.p("port") %><% end.else do %>n<% end %>`, "5432"},
		{"if_link else", `<% if_link("cache") do |l| %>y<% end.else do %>n<% end %>`, "n"},
		{"trim mode", "a\n<%- if true -%>\nb\n<%- end -%>\n", "a\nb\n"},
		{
			"json and yaml are there", `<%= JSON.generate(p("list")) %><%= YAML.dump("a" => 1) %>`,
			`["x",{"k":"v"}]` + "---\na: 1\n",
		},
		{"RubyGems is there", `<%= Gem::Version.new("1.10") > Gem::Version.new("1.9") %>`, "true"},
		{"a library", `<% require "base64" %><%= Base64.strict_encode64("x") %>`, "eA=="},
		{"a library that is a gem", `<% require 'matrix' %><%= Matrix.identity(2).trace %>`, "2"},
		{"no such library", "\n<% require 'no-such-library' %>", "(line 2: cannot load such file -- no-such-library)"},
		{"output of puts is not part of the result", `<% puts "noise" %>x`, "x"},
		{"raise", "1\n2\n<% raise 'no such zone' %>", "(line 3: no such zone)"},
		{"syntax error", "<% if %>", "Error filling in template 't.erb'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := renderOne(t, c.template, exampleContext())
			if got != c.want && !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestJobErrorListsAllTemplates(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "monit"), "<%= p('m') %>")
	writeFile(t, filepath.Join(dir, "templates", "a.erb"), "<%= p('x') %>")
	writeFile(t, filepath.Join(dir, "templates", "b.erb"), "fine")
	writeFile(t, filepath.Join(dir, "templates", "c.erb"), "\n\n<%= link('y') %>")
	_, failures, err := Jobs(context.Background(), []Job{
		{
			Name:      "j",
			Dir:       dir,
			Templates: map[string]string{"a.erb": "a", "b.erb": "b", "c.erb": "c"},
			Context:   map[string]any{},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `- Unable to render templates for job 'j'. Errors are:
  - Error filling in template 'monit' (line 1: Can't find property '["m"]')
  - Error filling in template 'a.erb' (line 1: Can't find property '["x"]')
  - Error filling in template 'c.erb' (line 3: Can't find link 'y')`
	if got := failures[0].Error(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestPropertiesAreThoseDeclared(t *testing.T) {
	declared := map[string]any{"a.b": 1, "a.c": nil, "d": "x", "flag": true}
	got, err := Properties("j", declared, map[string]any{
		"a": map[string]any{"c": 2, "undeclared": 3}, "flag": false, "other": 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	a := got["a"].(map[string]any)
	if a["b"] != 1 || a["c"] != 2 || len(a) != 2 || got["d"] != "x" || got["flag"] != false || len(got) != 3 {
		t.Errorf("got %v", got)
	}
	_, err = Properties("j", declared, map[string]any{"a": "text"})
	if err == nil || !strings.Contains(err.Error(), "Property 'a.b' expects a hash, but received 'String'") {
		t.Errorf("got %v", err)
	}
}
