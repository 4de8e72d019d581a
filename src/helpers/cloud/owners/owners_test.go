package owners

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"kubernetes-release/internal/apiclient"
)

// serve answers with these lists, by the last part of the path; to others with 403.
func serve(t *testing.T, lists map[string]string) *apiclient.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		items, ok := lists[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
		switch {
		case !ok:
			w.WriteHeader(http.StatusForbidden)
		case items == "broken":
			w.WriteHeader(http.StatusInternalServerError)
		case items == "absent":
			w.WriteHeader(http.StatusNotFound)
		default:
			fmt.Fprintf(w, `{"kind": "List", "items": [%s]}`, items)
		}
	}))
	t.Cleanup(server.Close)
	return &apiclient.Client{Server: server.URL, HTTP: server.Client()}
}

const web = `{"metadata": {"namespace": "default", "name": "web"}}`

// TestListFails where a list that is not complete would take what is in use for left behind.
func TestListFails(t *testing.T) {
	for name, test := range map[string]struct {
		lists map[string]string
		want  string
	}{
		"Services may not be listed":   {nil, "list services: 403"},
		"Services are not defined":     {map[string]string{"services": "absent"}, "list services: 404"},
		"no Services":                  {map[string]string{"services": ""}, "each cluster has default/kubernetes"},
		"something other than objects": {map[string]string{"services": "1"}, "list services: "},
		"Ingresses": {
			map[string]string{"services": web, "ingresses": "broken"}, "list ingresses: 500",
		},
	} {
		_, err := List(t.Context(), serve(t, test.lists), Ingresses, Gateways)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestList(t *testing.T) {
	client := serve(t, map[string]string{"services": web, "ingresses": "", "gateways": "absent"})
	objects, err := List(t.Context(), client, Ingresses, Gateways)
	_, ingresses := objects[Ingresses]
	_, gateways := objects[Gateways]
	if err != nil || len(objects[Services]) != 1 || objects[Services][0].ID() != "default/web" ||
		!ingresses || gateways {
		t.Errorf("%+v, %v", objects, err)
	}
	if objects, err = List(t.Context(), client); len(objects) != 1 || err != nil {
		t.Errorf("Services alone: %+v, %v", objects, err)
	}
}

// TestAround: an object that was there before or after the cloud was asked is there; a kind is known if it was listed
// both times.
func TestAround(t *testing.T) {
	named := func(name string) []Object {
		var o Object
		o.Metadata.Name = name
		return []Object{o}
	}
	lists := []Objects{
		{Services: named("old"), Ingresses: {}, Gateways: {}},
		{Services: named("new"), Ingresses: named("shop")},
	}
	list := Lister(func(context.Context) (Objects, error) {
		next := lists[0]
		lists = lists[1:]
		return next, nil
	})
	asked := 0
	objects, err := list.Around(t.Context(), func() error { asked = len(lists); return nil })
	if err != nil || asked != 1 || len(objects) != 2 || len(objects[Services]) != 2 || len(objects[Ingresses]) != 1 {
		t.Errorf("asked with %d lists to come: %+v, %v", asked, objects, err)
	}
	failed := errors.New("no answer")
	fails := Lister(func(context.Context) (Objects, error) { return nil, failed })
	if _, err := fails.Around(t.Context(), func() error { return nil }); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
}

func TestBalanced(t *testing.T) {
	var changed, plain, balanced Object
	changed.Spec.Type, changed.Metadata.Finalizers = "ClusterIP", []string{cleanup}
	plain.Spec.Type = "NodePort"
	balanced.Spec.Type = "LoadBalancer"
	if !changed.Balanced() || plain.Balanced() || !balanced.Balanced() {
		t.Errorf("%t, %t, %t", changed.Balanced(), plain.Balanced(), balanced.Balanced())
	}
}
