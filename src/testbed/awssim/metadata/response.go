package metadata

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
)

// Response is the response to a request.
type Response struct {
	Status int
	Body   string
	JSON   bool
	TTL    int
	Header map[string]string
}

func metadataError(status int) Response {
	return Response{Status: status, Body: fmt.Sprintf("%d - %s\n", status, http.StatusText(status))}
}

func text(value string) Response {
	return Response{Status: http.StatusOK, Body: value}
}

func document(v any) Response {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("awssim: metadata document: %v", err))
	}
	return Response{Status: http.StatusOK, Body: string(data), JSON: true}
}

// userData is decoded from the base64 of RunInstances.
func userData(encoded string) Response {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		data = []byte(encoded)
	}
	return Response{Status: http.StatusOK, Body: string(data)}
}
