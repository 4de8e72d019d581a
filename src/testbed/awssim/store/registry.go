package store

// Repository is a private repository of images. The images themselves are in memory only: they are gone after a
// restart.
type Repository struct {
	Name string `json:"name"`
	Tags Tags   `json:"tags,omitempty"`
}
