package wire

import (
	"encoding/xml"
	"errors"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

type filter struct {
	Name  string
	Value []string
}

type common struct {
	Filter     []filter
	MaxResults *int
}

type input struct {
	common
	IDs    []string `param:"InstanceId"`
	Nested struct {
		Enabled *bool
		Items   []struct{ Key string }
	}
}

func TestDecode(t *testing.T) {
	yes, five := true, 5
	full := input{
		common: common{Filter: []filter{{"vpc-id", []string{"a", "b"}}}, MaxResults: &five},
		IDs:    []string{"i-1", "i-2"},
	}
	full.Nested.Enabled = &yes
	full.Nested.Items = []struct{ Key string }{{"k"}}
	for _, tc := range []struct {
		name, form string
		style      Style
		want       input
		err        error
	}{
		{
			"ec2 lists are flat",
			"Filter.1.Name=vpc-id&Filter.1.Value.1=a&Filter.1.Value.2=b&MaxResults=5&InstanceId.1=i-1&" +
				"InstanceId.2=i-2&Nested.Enabled=true&Nested.Items.1.Key=k",
			EC2, full, nil,
		},
		{
			"query lists have members",
			"Filter.member.1.Name=vpc-id&Filter.member.1.Value.member.1=a&Filter.member.1.Value.member.2=b&" +
				"MaxResults=5&InstanceId.member.1=i-1&InstanceId.member.2=i-2&Nested.Enabled=true&" +
				"Nested.Items.member.1.Key=k",
			Query, full, nil,
		},
		{
			"order is by index, gaps closed", "InstanceId.10=i-2&InstanceId.9=i-1", EC2,
			input{IDs: []string{"i-1", "i-2"}}, nil,
		},
		{"empty query list", "InstanceId=", Query, input{}, nil},
		{"unknown parameter", "Color=red", EC2, input{}, &UnknownParameterError{"Color"}},
		{
			"unknown nested parameter", "Filter.1.Name=x&Filter.1.Nmae=x", EC2, input{},
			&UnknownParameterError{"Filter.1.Nmae"},
		},
		{"index zero", "InstanceId.0=i-1", EC2, input{}, &UnknownParameterError{"InstanceId.0"}},
		{"index with leading zero", "InstanceId.01=i-1", EC2, input{}, &UnknownParameterError{"InstanceId.01"}},
		{"not a number", "MaxResults=many", EC2, input{}, &InvalidParameterError{"MaxResults", "many", "an integer"}},
		{
			"not a bool", "Nested.Enabled=maybe", EC2, input{},
			&InvalidParameterError{"Nested.Enabled", "maybe", "true or false"},
		},
		{
			"too deep", "A" + strings.Repeat(".a", 20) + "=1", EC2, input{},
			&UnknownParameterError{"A" + strings.Repeat(".a", 20)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			values, err := url.ParseQuery(tc.form)
			if err != nil {
				t.Fatal(err)
			}
			var got input
			err = Decode(values, tc.style, &got)
			if !reflect.DeepEqual(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if err == nil && !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestResponse(t *testing.T) {
	type item struct {
		ID string `xml:"id"`
	}
	result := struct {
		Items []item `xml:"set>item"`
	}{[]item{{"a<b"}, {"c"}}}
	for _, tc := range []struct {
		style Style
		want  string
	}{
		{
			EC2,
			`<DoResponse xmlns="ns"><requestId>r-1</requestId><set><item><id>a&lt;b</id></item><item><id>c</id>` +
				`</item></set></DoResponse>`,
		},
		{
			Query,
			`<DoResponse xmlns="ns"><DoResult><set><item><id>a&lt;b</id></item><item><id>c</id></item></set>` +
				`</DoResult><ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata></DoResponse>`,
		},
	} {
		got, err := Response(tc.style, "ns", "Do", "r-1", result)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != xml.Header+tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

func TestErrorResponse(t *testing.T) {
	e := &Error{Code: "Bad", Message: "a < b"}
	if got, want := string(
		ErrorResponse(EC2, "ns", "r", e),
	), xml.Header+"<Response><Errors><Error><Code>Bad</Code><Message>a &lt; "+
		"b</Message></Error></Errors><RequestID>r</RequestID></Response>"; got != want {
		t.Errorf("got %s", got)
	}
	if got, want := string(
		ErrorResponse(Query, "ns", "r", e),
	), xml.Header+`<ErrorResponse xmlns="ns"><Error><Type>Sender</Type><Code>Bad</Code><Message>a &lt; b</Message>`+
		`</Error><RequestId>r</RequestId></ErrorResponse>`; got != want {
		t.Errorf("got %s", got)
	}
}

// FuzzDecode checks that Decode either accepts a form or returns one of its two errors, and that decoding a form twice
// has the same result.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", "Filter.1.Name=a&Filter.1.Value.1=b", "Filter.member.1.Name=a", "InstanceId=", "InstanceId.1",
		"Filter..Name=x",
		"Filter.-1.Name=x", "Filter.99999999999999999999=x", "Filter.1=x&Filter.1.Name=y", "Nested=1",
		"Nested.Enabled=TRUE", ".=x", "MaxResults=&MaxResults=2",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, form string, ec2 bool) {
		values, err := url.ParseQuery(form)
		if err != nil {
			return
		}
		style := Query
		if ec2 {
			style = EC2
		}
		var first, second input
		err = Decode(values, style, &first)
		var unknown *UnknownParameterError
		var invalid *InvalidParameterError
		if err != nil && !errors.As(err, &unknown) && !errors.As(err, &invalid) {
			t.Fatalf("unexpected kind of error: %v", err)
		}
		if err != nil {
			return
		}
		if err := Decode(values, style, &second); err != nil || !reflect.DeepEqual(first, second) {
			t.Fatalf("the same form decoded differently: %+v, %+v, %v", first, second, err)
		}
	})
}
