package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	mf "github.com/manifestival/manifestival"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maximum is the number of objects that later lines may refer to.
const maximum = 4096

// recorder is an empty cluster, which records what is written to it. Its Deployments are available
// at once.
type recorder struct {
	// Identities of the written objects, in order, with their digests.
	order   []string
	digests map[string]string
	// Texts of new objects by digest, and all digests that were written before.
	fresh map[string]json.RawMessage
	known map[string]bool
}

func newRecorder() *recorder {
	return &recorder{known: map[string]bool{}}
}

// record returns what reconcile writes.
func (r *recorder) record(reconcile func() error) (result Result) {
	r.order, r.digests, r.fresh = nil, map[string]string{}, map[string]json.RawMessage{}
	defer func() {
		if crash := recover(); crash != nil {
			r.forget()
			result = Result{Error: fmt.Sprint(crash), Panic: true}
		}
	}()
	if err := reconcile(); err != nil {
		r.forget()
		return Result{Error: err.Error()}
	}
	for _, identity := range r.order {
		result.Objects = append(result.Objects, r.digests[identity])
	}
	result.New = r.fresh
	return result
}

// forget makes the new objects unknown: nothing reports them.
func (r *recorder) forget() {
	for digest := range r.fresh {
		delete(r.known, digest)
	}
}

func identity(obj *unstructured.Unstructured) string {
	return fmt.Sprint(obj.GetAPIVersion(), " ", obj.GetKind(), " ", obj.GetNamespace(), "/", obj.GetName(), obj.GetGenerateName())
}

// write records an object, without waste: manifestival has its text in an annotation.
func (r *recorder) write(obj *unstructured.Unstructured) {
	text := obj.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	sum := sha256.Sum256([]byte(text))
	digest := hex.EncodeToString(sum[:16])
	if !r.known[digest] {
		if len(r.known) < maximum {
			r.known[digest] = true
		}
		r.fresh[digest] = json.RawMessage(text)
	}
	who := identity(obj)
	if _, again := r.digests[who]; !again {
		r.order = append(r.order, who)
	}
	r.digests[who] = digest
}

// Create implements mf.Client.
func (r *recorder) Create(obj *unstructured.Unstructured, _ ...mf.ApplyOption) error {
	r.write(obj)
	return nil
}

// Update implements mf.Client. Nothing is updated: only Deployments exist, and they are not
// released twice.
func (r *recorder) Update(obj *unstructured.Unstructured, _ ...mf.ApplyOption) error {
	return fmt.Errorf("unexpected update of %s", identity(obj))
}

// Delete implements mf.Client.
func (r *recorder) Delete(*unstructured.Unstructured, ...mf.DeleteOption) error {
	return nil
}

// Get implements mf.Client.
func (r *recorder) Get(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if _, exists := r.digests[identity(obj)]; !exists || obj.GetKind() != "Deployment" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: obj.GetKind()}, obj.GetName())
	}
	live := obj.DeepCopy()
	available := map[string]any{"type": "Available", "status": "True"}
	return live, unstructured.SetNestedSlice(live.Object, []any{available}, "status", "conditions")
}
