package awserr

import (
	"strings"
	"testing"

	"github.com/aws/smithy-go"
)

// FuzzDeniedAction: the name of the denied action is extracted from AWS's message.
func FuzzDeniedAction(f *testing.F) {
	f.Add(
		"You are not authorized to perform this operation. User: x is not authorized to perform: ec2:CreateTags on " +
			"resource: y",
	)
	f.Add("not authorized to perform: ")
	f.Fuzz(func(t *testing.T, message string) {
		got := DeniedAction(&smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: message}, "ec2:Otherwise")
		if service, name, ok := strings.Cut(got, ":"); !ok || service == "" || name == "" ||
			strings.ContainsAny(got, " \n") {
			t.Errorf("%q", got)
		}
	})
}
