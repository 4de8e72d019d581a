package awsapi

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strings"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/preflight"
)

// maxAnswer limits one answer, in bytes. The largest ones have 1,000 subnets with 50 tags each.
const maxAnswer = 64 << 20

// verifyAnswer checks that a successful response is the answer to an operation: an XML document with the root element
// OPERATIONResponse. The SDK treats everything else, such as the page of a captive portal, as an answer without
// content. Secrets are removed from everything that a message may quote.
func verifyAnswer(operation string, response *http.Response, secrets *preflight.Secrets) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	closeErr := response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err == nil {
		err = closeErr
	}
	if response.StatusCode >= 300 {
		response.Body = io.NopCloser(strings.NewReader(secrets.Clean(string(body))))
		return nil // an error of the API, or of something else: the SDK tells
	}
	if err != nil {
		return &awserr.CutOff{Status: response.StatusCode, Err: err}
	}
	if root := rootElement(body); root != operation+"Response" {
		return awserr.WrongAnswer(
			fmt.Sprintf(
				"HTTP %d with something other than a %sResponse: %q", response.StatusCode, operation,
				awserr.Clip(strings.Join(strings.Fields(secrets.Clean(string(body))), " ")),
			),
		)
	}
	return nil
}

// rootElement returns the name of an XML document's root element, or "" if it is not one.
func rootElement(document []byte) string {
	decoder := xml.NewDecoder(bytes.NewReader(document))
	for {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		switch t := token.(type) {
		case xml.StartElement:
			return t.Name.Local
		case xml.CharData:
			if len(bytes.TrimSpace(t)) > 0 {
				return ""
			}
		}
	}
}
