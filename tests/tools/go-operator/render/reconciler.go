package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"reflect"
	"unsafe"

	mf "github.com/manifestival/manifestival"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"

	"knative.dev/operator/pkg/reconciler/common"
)

// prepare gives reconciler what its controller would: it has no other way to set these fields.
func prepare(ctx context.Context, reconciler any, cluster *recorder) error {
	manifest, err := mf.ManifestFrom(mf.Slice{}, mf.UseClient(cluster))
	if err != nil {
		return err
	}
	spokes := spokes{cluster}
	provider, err := common.NewClusterProvider(ctx, spokes.config(), "", common.WithClientFactory(spokes))
	if err != nil {
		return err
	}
	set(provider, "access", common.ClusterProfileAccess(spokes))
	set(reconciler, "manifest", manifest)
	set(reconciler, "extension", common.NoExtension(ctx, nil))
	set(reconciler, "clusterProvider", provider)
	return nil
}

// set sets a field that is not exported.
func set[T any](structure any, field string, value T) {
	place := reflect.ValueOf(structure).Elem().FieldByName(field)
	*(*T)(unsafe.Pointer(place.UnsafeAddr())) = value
}

// spokes provides the recorder as every remote cluster, and plays the API servers of the hub and the
// spokes: each ClusterProfile is healthy, and spokes have nothing but Namespaces.
type spokes struct{ cluster *recorder }

func (s spokes) config() *rest.Config {
	return &rest.Config{Host: "http://cluster", Transport: s, QPS: -1}
}

// BuildConfigFromCP implements common.ClusterProfileAccess.
func (s spokes) BuildConfigFromCP(*inventory.ClusterProfile) (*rest.Config, error) {
	return s.config(), nil
}

// NewMfClient implements common.ClientFactory.
func (s spokes) NewMfClient(*rest.Config) (mf.Client, error) {
	return s.cluster, nil
}

// NewKubeClient implements common.ClientFactory.
func (s spokes) NewKubeClient(*rest.Config) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(s.config())
}

// RoundTrip implements http.RoundTripper.
func (s spokes) RoundTrip(request *http.Request) (*http.Response, error) {
	name, status, body := path.Base(request.URL.Path), http.StatusOK, []byte{}
	metadata := map[string]any{"name": name, "uid": "1"}
	var object any
	switch kind := path.Base(path.Dir(request.URL.Path)); {
	case request.Method != http.MethodGet:
		status = http.StatusCreated
		sent, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		body = sent
	case kind == "clusterprofiles":
		healthy := map[string]any{"type": inventory.ClusterConditionControlPlaneHealthy, "status": "True"}
		object = map[string]any{"apiVersion": inventory.GroupVersion.String(), "kind": "ClusterProfile", "metadata": metadata,
			"status": map[string]any{"conditions": []any{healthy}}}
	case kind == "namespaces":
		object = map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
	case kind == "configmaps":
		status = http.StatusNotFound
		object = map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": status}
	default:
		return nil, fmt.Errorf("unexpected request %s %s", request.Method, request.URL)
	}
	if object != nil {
		text, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		body = text
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if sent := request.Header.Get("Content-Type"); sent != "" {
		header.Set("Content-Type", sent)
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(body)), Request: request}, nil
}
