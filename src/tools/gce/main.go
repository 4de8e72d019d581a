// Command gce is the cloud controller manager of Google Cloud, as far as it is in modules that can be had: the start of
// cmd/cloud-controller-manager in cloud-provider-gcp, without the controllers for GKE.
package main

import (
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"

	_ "k8s.io/cloud-provider-gcp/providers/gce"
)

func main() {
	settings, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatal(err)
	}
	command := app.NewCloudControllerManagerCommand(
		settings, start, app.DefaultInitFuncConstructors, names.CCMControllerAliases(), cliflag.NamedFlagSets{},
		wait.NeverStop,
	)
	if command.Execute() != nil {
		os.Exit(1)
	}
}

func start(completed *config.CompletedConfig) cloudprovider.Interface {
	given := completed.ComponentConfig.KubeCloudShared.CloudProvider
	cloud, err := cloudprovider.InitCloudProvider(given.Name, given.CloudConfigFile)
	if err != nil {
		klog.Fatal(err)
	}
	return cloud
}
