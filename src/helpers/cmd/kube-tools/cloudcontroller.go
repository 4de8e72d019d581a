package main

import (
	"github.com/spf13/cobra"

	"kubernetes-release/addons"
	"kubernetes-release/cloud/controller"
	"kubernetes-release/cloud/providers"
)

const controllerUsage = "JSON file of the job cloud-controller-image, config/controller.json"

func checkCloudController() *cobra.Command {
	command := &cobra.Command{
		Use:   "check-cloud-controller",
		Short: "Fail if the manifests of the cloud controller manager cannot be rendered",
	}
	path := requirePath(command, "config", controllerUsage)
	command.RunE = func(*cobra.Command, []string) error {
		_, err := controller.Load(*path, providers.All())
		return err
	}
	return command
}

// cloudController returns the objects of the cloud controller manager in pods; none without a path.
func cloudController(path string) ([]addons.Object, error) {
	if path == "" {
		return nil, nil
	}
	manifests, err := controller.Load(path, providers.All())
	if err != nil {
		return nil, err
	}
	var objects []addons.Object
	for _, object := range manifests.GetResources() {
		objects = append(objects, addons.Object{Unstructured: object, File: "cloud controller manager"})
	}
	return objects, nil
}
