package main

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"kubernetes-release/cloud/controller"
	"kubernetes-release/cloud/driver"
	"kubernetes-release/cloud/providers"
	"kubernetes-release/control/addons"
)

const (
	controllerUsage = "JSON file of the job cloud-controller-image, config/controller.json"
	driverUsage     = "JSON file of the job csi-driver-image, config/driver.json"
)

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

func checkDriverImage() *cobra.Command {
	command := &cobra.Command{
		Use:   "check-driver-image",
		Short: "Fail if the manifests of the CSI driver in pods cannot be rendered",
	}
	path := requirePath(command, "config", driverUsage)
	command.RunE = func(*cobra.Command, []string) error {
		_, err := driver.Load(*path, providers.All())
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
	return addonsOf(manifests.GetResources(), "cloud controller manager"), nil
}

// csiDriver returns the objects of the CSI driver in pods; none without a path.
func csiDriver(path string) ([]addons.Object, error) {
	if path == "" {
		return nil, nil
	}
	manifests, err := driver.Load(path, providers.All())
	if err != nil {
		return nil, err
	}
	return addonsOf(manifests.GetResources(), "CSI driver"), nil
}

// inPods returns the objects of both.
func inPods(controllerConfig, driverConfig string) ([]addons.Object, error) {
	objects, err := cloudController(controllerConfig)
	if err != nil {
		return nil, err
	}
	more, err := csiDriver(driverConfig)
	return append(objects, more...), err
}

// addonsOf returns the objects of a source, which messages name as their file.
func addonsOf(objects []*unstructured.Unstructured, source string) []addons.Object {
	of := make([]addons.Object, 0, len(objects))
	for _, object := range objects {
		of = append(of, addons.Object{Unstructured: object, File: source})
	}
	return of
}
