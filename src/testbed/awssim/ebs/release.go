package ebs

import (
	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/store"
)

// ReleaseVolumes detaches the volumes of a terminated instance.
func ReleaseVolumes(c *api.Call, instance string) {
	for i := range c.Volumes {
		v := &c.Volumes[i]
		for k := range v.Attachments {
			if a := &v.Attachments[k]; a.Instance == instance {
				a.State, a.Force, a.Due = store.AttachmentDetaching, true, c.Now
			}
		}
	}
}
