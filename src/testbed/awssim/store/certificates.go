package store

// Certificate is a certificate that was imported to Certificate Manager.
type Certificate struct {
	ARN     string   `json:"arn"`
	Domains []string `json:"domains"`
	// Chain and Key are PEM.
	Chain string `json:"chain"`
	Key   string `json:"key"`
}

func (c Certificate) key() string { return c.ARN }

// CertificateUsers are the ARNs of the load balancers with a listener that serves a certificate.
func (w *World) CertificateUsers(arn string) []string {
	var users []string
	for _, l := range w.Listeners {
		for _, used := range l.Certificates {
			if used == arn {
				users = append(users, l.LoadBalancer)
			}
		}
	}
	return users
}
