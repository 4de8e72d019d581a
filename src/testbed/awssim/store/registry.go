package store

import (
	"fmt"
)

// Repository is a private repository of images. The images themselves are in memory only: they are gone after a
// restart.
type Repository struct {
	Name string `json:"name"`
	Tags Tags   `json:"tags,omitempty"`
}

// RepositoryARN is the ARN of a repository.
func (w *World) RepositoryARN(name string) string {
	return w.ARN("ecr", w.Region, "repository/"+name)
}

// RegistryHost is the host in names of the account's images.
func (w *World) RegistryHost() string {
	return fmt.Sprintf("%s.dkr.ecr.%s.%s", w.Account, w.Region, w.Domain())
}

// LayersHost is the host that layers are downloaded from (Amazon ECR user guide, "Create the Amazon S3 gateway
// endpoint").
func (w *World) LayersHost() string {
	return fmt.Sprintf("prod-%[1]s-starport-layer-bucket.s3.%[1]s.%[2]s", w.Region, w.Domain())
}

// RegistryHosts are the host of images and that of their layers.
func (w *World) RegistryHosts() []string { return []string{w.RegistryHost(), w.LayersHost()} }

// Domain is the partition's.
func (w *World) Domain() string {
	if w.Partition == "aws-cn" {
		return "amazonaws.com.cn"
	}
	return "amazonaws.com"
}
