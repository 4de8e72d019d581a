package facts

import (
	"regexp"
	"slices"
	"strings"
)

// awsManagedKey ends the name of the key that AWS manages, which everyone in the account may use.
const awsManagedKey = "alias/aws/ebs"

// keyName matches the names of a key that EC2 takes for volumes (KmsKeyId in the reference of CreateVolume): its id,
// its alias, and the ARN of either, with the region.
var keyName = regexp.MustCompile(
	`^(?:arn:aws[a-z-]*:kms:([a-z0-9-]+):[0-9]{12}:(?:key/[A-Za-z0-9-]+|alias/[A-Za-z0-9/_-]+)|` +
		`(?:mrk-)?[0-9a-f-]{32,36}|alias/[A-Za-z0-9/_-]+)$`,
)

// Keys are the customer managed keys that volumes are encrypted with, as they are named.
func (f *Facts) Keys() []string {
	keys := slices.Clone(f.Settings.StorageKeys)
	if f.Encryption.ByDefault {
		keys = append(keys, f.Encryption.Key)
	}
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == "" || strings.HasSuffix(k, awsManagedKey) })
	slices.Sort(keys)
	return slices.Compact(keys)
}

// IsKeyName reports whether EC2 would take the name for a key.
func (f *Facts) IsKeyName(name string) bool { return keyName.MatchString(name) }

// IsInRegion reports whether the name of a key can be that of one in the region of the volumes.
func (f *Facts) IsInRegion(name string) bool {
	match := keyName.FindStringSubmatch(name)
	return match != nil && (match[1] == "" || match[1] == f.Region())
}
