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
