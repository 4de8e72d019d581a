package awssim_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/acm"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/selfsigned"
)

// listenerCertificates imports certificates and gives them to a listener.
type listenerCertificates struct {
	t                  *testing.T
	c                  clients
	balancer, listener string
	arns               map[string]string // by domain
}

func checkCertificates(t *testing.T, covered map[string]bool, c clients) {
	l := &listenerCertificates{t: t, c: c, arns: map[string]string{}}
	shop, api := []string{"shop.example", "www.shop.example"}, []string{"api.example"}
	run(t, covered, []step{
		{action: "acm:ImportCertificate", call: l.imports(shop, []byte("another key")), code: "ValidationException"},
		{action: "acm:ImportCertificate", call: l.imports(shop, nil), want: nil},
		{action: "acm:ImportCertificate", call: l.imports(api, nil), want: nil},
		{action: "acm:ListCertificates", call: func(ctx context.Context) (any, error) {
			out, err := c.acm.ListCertificates(ctx, &acm.ListCertificatesInput{})
			if err != nil {
				return nil, err
			}
			var names []string
			for _, summary := range out.CertificateSummaryList {
				names = append(names, *summary.DomainName)
			}
			return names, nil
		}, want: "[shop.example api.example]"},
		{action: "acm:DescribeCertificate", call: l.describes("missing"), code: "ResourceNotFoundException"},
		{
			action: "acm:DescribeCertificate", call: l.describes("shop.example"),
			want: "ISSUED [shop.example www.shop.example] 0",
		},
		{action: "elbv2:CreateLoadBalancer", call: func(ctx context.Context) (any, error) {
			out, err := c.elbv2.CreateLoadBalancer(ctx, &elbv2.CreateLoadBalancerInput{
				Name: aws.String("secure"), Scheme: "internal", SecurityGroups: []string{awssim.LabSecurityGroup},
				Subnets: []string{awssim.LabNodeSubnet(1), awssim.LabNodeSubnet(2)},
			})
			if err != nil {
				return nil, err
			}
			l.balancer = *out.LoadBalancers[0].LoadBalancerArn
			return nil, nil
		}, want: nil},
		{action: "elbv2:CreateListener", call: l.listens("HTTPS"), code: "CertificateNotFound"},
		{action: "elbv2:CreateListener", call: l.listens("HTTPS", "missing"), code: "CertificateNotFound"},
		{
			action: "elbv2:CreateListener", call: l.listens("HTTPS", "shop.example", "api.example"),
			code: "TooManyCertificates",
		},
		{action: "elbv2:CreateListener", call: l.listens("HTTP", "shop.example"), code: "InvalidConfigurationRequest"},
		{
			action: "elbv2:CreateListener", call: l.listens("HTTPS", "shop.example"),
			want: "HTTPS ELBSecurityPolicy-2016-08 true",
		},
		{action: "elbv2:AddListenerCertificates", call: l.adds("missing"), code: "CertificateNotFound"},
		{action: "elbv2:AddListenerCertificates", call: l.adds("api.example"), want: nil},
		{action: "elbv2:DescribeListenerCertificates", call: l.serves, want: "shop.example:true api.example:false"},
		{action: "elbv2:ModifyListener", call: func(ctx context.Context) (any, error) {
			out, err := c.elbv2.ModifyListener(ctx, &elbv2.ModifyListenerInput{
				ListenerArn: &l.listener, SslPolicy: aws.String("ELBSecurityPolicy-TLS13-1-2-2021-06"),
			})
			if err != nil {
				return nil, err
			}
			return *out.Listeners[0].SslPolicy, nil
		}, want: "ELBSecurityPolicy-TLS13-1-2-2021-06"},
		{action: "acm:DescribeCertificate", call: l.describes("api.example"), want: "ISSUED [api.example] 1"},
		{action: "acm:DeleteCertificate", call: l.deletes("api.example"), code: "ResourceInUseException"},
		{action: "elbv2:RemoveListenerCertificates", call: l.removes("shop.example"), code: "OperationNotPermitted"},
		{action: "elbv2:RemoveListenerCertificates", call: l.removes("api.example"), want: nil},
		{action: "acm:DeleteCertificate", call: l.deletes("api.example"), want: nil},
		{action: "elbv2:DescribeListenerCertificates", call: l.serves, want: "shop.example:true"},
		{action: "elbv2:DeleteLoadBalancer", call: func(ctx context.Context) (any, error) {
			return none(c.elbv2.DeleteLoadBalancer(ctx, &elbv2.DeleteLoadBalancerInput{LoadBalancerArn: &l.balancer}))
		}, want: nil},
		{action: "acm:DeleteCertificate", call: l.deletes("shop.example"), want: nil},
	})
}

func (l *listenerCertificates) imports(hosts []string, key []byte) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		chain, own, err := selfsigned.New("test", hosts...)
		if err != nil {
			l.t.Fatal(err)
		}
		if key == nil {
			key = own
		}
		out, err := l.c.acm.ImportCertificate(ctx, &acm.ImportCertificateInput{Certificate: chain, PrivateKey: key})
		if err == nil {
			l.arns[hosts[0]] = *out.CertificateArn
		}
		return none(out, err)
	}
}

func (l *listenerCertificates) arn(domain string) *string {
	if arn, known := l.arns[domain]; known {
		return &arn
	}
	return aws.String("arn:aws:acm:us-east-1:123456789012:certificate/" + domain)
}

func (l *listenerCertificates) list(domains ...string) []elbv2types.Certificate {
	var list []elbv2types.Certificate
	for _, domain := range domains {
		list = append(list, elbv2types.Certificate{CertificateArn: l.arn(domain)})
	}
	return list
}

func (l *listenerCertificates) describes(domain string) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		out, err := l.c.acm.DescribeCertificate(ctx, &acm.DescribeCertificateInput{CertificateArn: l.arn(domain)})
		if err != nil {
			return nil, err
		}
		found := out.Certificate
		return fmt.Sprintf("%s %v %d", found.Status, found.SubjectAlternativeNames, len(found.InUseBy)), nil
	}
}

func (l *listenerCertificates) deletes(domain string) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		return none(l.c.acm.DeleteCertificate(ctx, &acm.DeleteCertificateInput{CertificateArn: l.arn(domain)}))
	}
}

func (l *listenerCertificates) listens(
	protocol elbv2types.ProtocolEnum, domains ...string,
) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		out, err := l.c.elbv2.CreateListener(ctx, &elbv2.CreateListenerInput{
			LoadBalancerArn: &l.balancer, Port: aws.Int32(443), Protocol: protocol, Certificates: l.list(domains...),
			DefaultActions: []elbv2types.Action{{
				Type:                "fixed-response",
				FixedResponseConfig: &elbv2types.FixedResponseActionConfig{StatusCode: aws.String("404")},
			}},
		})
		if err != nil {
			return nil, err
		}
		made := out.Listeners[0]
		l.listener = *made.ListenerArn
		own := *made.Certificates[0].CertificateArn == *l.arn(domains[0])
		return fmt.Sprintf("%s %s %t", made.Protocol, *made.SslPolicy, own), nil
	}
}

func (l *listenerCertificates) adds(domain string) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		return none(l.c.elbv2.AddListenerCertificates(ctx, &elbv2.AddListenerCertificatesInput{
			ListenerArn: &l.listener, Certificates: l.list(domain),
		}))
	}
}

func (l *listenerCertificates) removes(domain string) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		return none(l.c.elbv2.RemoveListenerCertificates(ctx, &elbv2.RemoveListenerCertificatesInput{
			ListenerArn: &l.listener, Certificates: l.list(domain),
		}))
	}
}

func (l *listenerCertificates) serves(ctx context.Context) (any, error) {
	out, err := l.c.elbv2.DescribeListenerCertificates(
		ctx, &elbv2.DescribeListenerCertificatesInput{ListenerArn: &l.listener},
	)
	if err != nil {
		return nil, err
	}
	text := ""
	for n, served := range out.Certificates {
		for domain, arn := range l.arns {
			if arn == *served.CertificateArn {
				if n > 0 {
					text += " "
				}
				text += fmt.Sprintf("%s:%t", domain, aws.ToBool(served.IsDefault))
			}
		}
	}
	return text, nil
}
