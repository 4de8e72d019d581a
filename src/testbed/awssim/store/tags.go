package store

// Tags are a resource's tags.
type Tags map[string]string

// Pair is a tag in the form of Elastic Load Balancing.
type Pair struct {
	Key, Value string
}
