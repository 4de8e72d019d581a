// Command extension is an example of what extends an API server from a pod: a validating webhook, which denies objects
// with the label "forbidden", and an aggregated API with one object. Only acceptance tests run it.
//
// It serves HTTPS on port 8443 with the certificate and the key of its two arguments.
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"
	"time"
)

// groupVersion is the aggregated API.
const groupVersion = "acceptance.example.com/v1"

func main() {
	if len(os.Args) != 3 {
		log.Fatal("Error: usage: extension CERTIFICATE PRIVATE-KEY")
	}
	server := &http.Server{Addr: ":8443", Handler: handler(), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal("Error: ", server.ListenAndServeTLS(os.Args[1], os.Args[2]))
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /validate", validate)
	mux.HandleFunc("GET /apis/"+groupVersion, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"kind":         "APIResourceList",
			"apiVersion":   "v1",
			"groupVersion": groupVersion,
			"resources": []any{
				map[string]any{
					"name":         "greetings",
					"singularName": "greeting",
					"namespaced":   false,
					"kind":         "Greeting",
					"verbs":        []string{"get"},
				},
			},
		})
	})
	mux.HandleFunc("GET /apis/"+groupVersion+"/greetings/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, map[string]any{
			"kind":       "Greeting",
			"apiVersion": groupVersion,
			"metadata":   map[string]any{"name": r.PathValue("name")},
			"text":       "from a pod",
		})
	})
	return mux
}

// validate answers an AdmissionReview.
func validate(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion string `json:"apiVersion"`
		Request    struct {
			UID    string `json:"uid"`
			Object struct {
				Metadata struct {
					Labels map[string]string `json:"labels"`
				} `json:"metadata"`
			} `json:"object"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response := map[string]any{"uid": review.Request.UID, "allowed": true}
	if _, forbidden := review.Request.Object.Metadata.Labels["forbidden"]; forbidden {
		response["allowed"] = false
		response["status"] = map[string]any{
			"message": "the webhook of the acceptance tests forbids it",
			"code":    http.StatusForbidden,
		}
	}
	answer(w, map[string]any{"kind": "AdmissionReview", "apiVersion": review.APIVersion, "response": response})
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		log.Print("write the answer: ", err)
	}
}
