package iampolicy

// What job kms-plugin calls for the API server. The check kms-key calls both too.
const (
	EncryptAction = "kms:Encrypt"
	DecryptAction = "kms:Decrypt"
)

// ContextKey is the key of KMS's encryption context whose value is the cluster's name. With it the policy of a
// cluster's machines allows the key for that cluster alone, and what is encrypted for another one cannot be decrypted.
const ContextKey = "kubernetes.io/cluster"

// encryptionPermissions are the calls of job kms-plugin, which uses the role of the control machines' instance
// profile.
func encryptionPermissions() []Permission {
	var table []Permission
	for _, action := range []string{EncryptAction, DecryptAction} {
		table = append(table, Permission{
			Action: action, roles: controlMachines, holder: machines, Scope: encryptsSecrets,
			Why:  "The API server encrypts and decrypts Secrets in etcd with it.",
			when: func(n Needs) bool { return len(n.Secrets) > 0 },
		})
	}
	return table
}
