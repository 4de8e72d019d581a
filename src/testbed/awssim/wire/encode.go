package wire

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
)

// Error is an error response of AWS.
type Error struct {
	Code    string // as the service documents it, for example InvalidSubnetID.NotFound
	Message string
	Status  int // HTTP status; 0 stands for 400
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// HTTPStatus is Status, or 400 if it is 0.
func (e *Error) HTTPStatus() int {
	if e.Status == 0 {
		return http.StatusBadRequest
	}
	return e.Status
}

// Response encodes the response of an action. result is a struct (or pointer to one) with xml tags, whose fields become
// the children of <ActionResponse> (EC2) or <ActionResult> (Query), or with json tags (JSON); nil means a response
// without content.
func Response(style Style, namespace, action, requestID string, result any) ([]byte, error) {
	if style == JSON {
		return jsonResponse(action, result)
	}
	inner, err := innerXML(result)
	if err != nil {
		return nil, fmt.Errorf("encode the response to %s: %w", action, err)
	}
	var b strings.Builder
	b.WriteString(xml.Header)
	fmt.Fprintf(&b, `<%sResponse xmlns="%s">`, action, namespace)
	if style == EC2 {
		fmt.Fprintf(&b, "<requestId>%s</requestId>%s", requestID, inner)
	} else {
		fmt.Fprintf(
			&b, "<%[1]sResult>%[2]s</%[1]sResult><ResponseMetadata><RequestId>%[3]s</RequestId></ResponseMetadata>",
			action, inner, requestID,
		)
	}
	fmt.Fprintf(&b, "</%sResponse>", action)
	return []byte(b.String()), nil
}

func jsonResponse(action string, result any) ([]byte, error) {
	if result == nil {
		return []byte("{}"), nil
	}
	out, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("encode the response to %s: %w", action, err)
	}
	return out, nil
}

// innerXML encodes a struct's fields without an enclosing element.
func innerXML(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	var b strings.Builder
	enc := xml.NewEncoder(&b)
	if err := enc.EncodeElement(v, xml.StartElement{Name: xml.Name{Local: "x"}}); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(strings.TrimPrefix(b.String(), "<x>"), "</x>")), nil
}

type ec2Error struct {
	XMLName   xml.Name `xml:"Response"`
	Code      string   `xml:"Errors>Error>Code"`
	Message   string   `xml:"Errors>Error>Message"`
	RequestID string   `xml:"RequestID"`
}

type queryError struct {
	XMLName   xml.Name `xml:"ErrorResponse"`
	Namespace string   `xml:"xmlns,attr"`
	Type      string   `xml:"Error>Type"`
	Code      string   `xml:"Error>Code"`
	Message   string   `xml:"Error>Message"`
	RequestID string   `xml:"RequestId"`
}

// ErrorResponse encodes an error as the services of the protocol do.
func ErrorResponse(style Style, namespace, requestID string, e *Error) []byte {
	if style == JSON {
		out, err := jsonResponse("", map[string]string{"__type": e.Code, "message": e.Message})
		if err != nil {
			panic(fmt.Sprintf("wire: a map of strings could not be encoded: %v", err))
		}
		return out
	}
	var doc any = ec2Error{Code: e.Code, Message: e.Message, RequestID: requestID}
	if style == Query {
		blame := "Sender"
		if e.HTTPStatus() >= http.StatusInternalServerError {
			blame = "Receiver"
		}
		doc = queryError{Namespace: namespace, Type: blame, Code: e.Code, Message: e.Message, RequestID: requestID}
	}
	out, err := xml.Marshal(doc)
	if err != nil {
		panic(fmt.Sprintf("wire: an error document of strings could not be encoded: %v", err))
	}
	return append([]byte(xml.Header), out...)
}
