// Package check validates the manifests in deploy/kubernetes, and those that gpurun submit
// k8s prints, against the types of the Kubernetes API. It is a separate module, because
// gpurun does not depend on them.
package check

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// kinds maps apiVersion/kind to a function that returns an empty object of that type.
var kinds = map[string]func() any{
	"apps/v1/Deployment": func() any { return new(appsv1.Deployment) },
	"batch/v1/Job":       func() any { return new(batchv1.Job) },
	"v1/ConfigMap":       func() any { return new(corev1.ConfigMap) },
	"v1/Service":         func() any { return new(corev1.Service) },
}

// TestManifests: every document decodes strictly, so an unknown or misspelled member, or
// one of the wrong type, fails.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests found: %v", err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			decode(t, path, document)
		}
	}
}

func decode(t *testing.T, path string, document []byte) any {
	t.Helper()
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(document, &meta); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	empty := kinds[meta.APIVersion+"/"+meta.Kind]
	if empty == nil {
		t.Fatalf("%s: no type for %s/%s: add it to kinds", path, meta.APIVersion, meta.Kind)
	}
	object := empty()
	if err := yaml.UnmarshalStrict(document, object); err != nil {
		t.Errorf("%s: %s: %v", path, meta.Kind, err)
	}
	return object
}

// serve returns the objects of gpurun serve.
func serve(t *testing.T) (deployment *appsv1.Deployment, service *corev1.Service, config *corev1.ConfigMap) {
	t.Helper()
	text, err := os.ReadFile("../kubernetes/gpurun-serve.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		switch object := decode(t, "gpurun-serve.yaml", document).(type) {
		case *appsv1.Deployment:
			deployment = object
		case *corev1.Service:
			service = object
		case *corev1.ConfigMap:
			config = object
		}
	}
	return deployment, service, config
}

// selects reports whether a selector matches labels.
func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// TestSelectors: the service and the deployment select the pods of the template.
func TestSelectors(t *testing.T) {
	deployment, service, config := serve(t)
	labels := deployment.Spec.Template.Labels
	for name, selector := range map[string]map[string]string{"deployment": deployment.Spec.Selector.MatchLabels, "service": service.Spec.Selector} {
		if !selects(selector, labels) {
			t.Errorf("%s selects %v; pods have %v", name, selector, labels)
		}
	}
	if port := service.Spec.Ports[0].Port; port != 8000 {
		t.Errorf("service port %d; want 8000", port)
	}
	if volume := deployment.Spec.Template.Spec.Volumes[0]; volume.ConfigMap == nil || volume.ConfigMap.Name != config.Name {
		t.Errorf("volume %+v does not mount the ConfigMap %s", volume, config.Name)
	}
}
