package store

// Place returns the subnet of an instance, or an empty one if it was deleted, which is possible after a termination.
func (w *World) Place(i *Instance) Subnet {
	if s := Find(w.Subnets, i.Subnet); s != nil {
		return *s
	}
	return Subnet{}
}

// ProfileARN is the ARN of an instance profile.
func (w *World) ProfileARN(name string) string {
	if name == "" {
		return ""
	}
	return w.ARN("iam", "", "instance-profile/"+name)
}
