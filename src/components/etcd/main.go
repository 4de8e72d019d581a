// Command etcd is etcd's server, or etcdctl or etcdutl when it is called by their names. One link instead of three
// halves what they add to the release.
package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
	"go.etcd.io/etcd/pkg/v3/cobrautl"
	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	switch filepath.Base(os.Args[0]) {
	case "etcdctl":
		ctlv3.MustStart()
	case "etcdutl":
		if err := utilities().Execute(); err != nil {
			cobrautl.ExitWithError(cobrautl.ExitError, err)
		}
	default:
		etcdmain.Main(os.Args)
	}
}

// utilities is etcdutl's command with upstream's flags and defaults; upstream has it in a main package, which can't be
// imported.
func utilities() *cobra.Command {
	cobra.EnablePrefixMatching = true
	root := &cobra.Command{Use: "etcdutl", Short: "Works on the files of an etcd member that is stopped."}
	root.PersistentFlags().
		DurationVar(&etcdutl.FlockTimeout, "timeout", 10*time.Second, "how long to wait for the database file's "+
			"lock, 0 for ever")
	root.PersistentFlags().
		StringVarP(&etcdutl.OutputFormat, "write-out", "w", "simple", "output format: fields, json, protobuf, "+
			"simple, table")
	root.AddCommand(
		etcdutl.NewDefragCommand(),
		etcdutl.NewSnapshotCommand(),
		etcdutl.NewHashKVCommand(),
		etcdutl.NewVersionCommand(),
		etcdutl.NewCompletionCommand(),
		etcdutl.NewMigrateCommand(),
	)
	root.SetHelpTemplate(`{{.UsageString}}`)
	return root
}
