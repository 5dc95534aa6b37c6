// Package main renders resources with the reconcilers of the Go operator, without a cluster.
//
// It reads one KnativeServing or KnativeEventing in JSON from each line of stdin, and writes one
// line for each: {"objects": [DIGEST…], "new": {DIGEST: OBJECT…}}, or {"error": MESSAGE}, with
// "panic": true if the reconciler crashed. The line has all objects by their digests, and in "new"
// those that no line before has, and all of them once there are many.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/logging"

	"knative.dev/operator/pkg/apis/operator/base"
	"knative.dev/operator/pkg/apis/operator/v1beta1"
	"knative.dev/operator/pkg/reconciler/common"
	"knative.dev/operator/pkg/reconciler/knativeeventing"
	"knative.dev/operator/pkg/reconciler/knativeserving"
)

// Result is a line of the output.
type Result struct {
	Objects []string                   `json:"objects,omitempty"`
	New     map[string]json.RawMessage `json:"new,omitempty"`
	Error   string                     `json:"error,omitempty"`
	Panic   bool                       `json:"panic,omitempty"`
}

func main() {
	releases := flag.String("kodata", os.Getenv(common.KoEnvKey), "folder of the releases")
	flag.Parse()
	if err := run(*releases); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(releases string) error {
	if err := os.Setenv(common.KoEnvKey, releases); err != nil {
		return err
	}
	log.SetOutput(io.Discard) // Knative warns of unknown flags
	ctx := logging.WithLogger(context.Background(), zap.NewNop().Sugar())
	cluster := newRecorder()
	serving, eventing := &knativeserving.Reconciler{}, &knativeeventing.Reconciler{}
	for _, reconciler := range []any{serving, eventing} {
		if err := prepare(ctx, reconciler, cluster); err != nil {
			return err
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := bufio.NewWriter(os.Stdout)
	answer := json.NewEncoder(out)
	answer.SetEscapeHTML(false)
	for lines.Scan() {
		var kind struct{ Kind string }
		if err := json.Unmarshal(lines.Bytes(), &kind); err != nil {
			return err
		}
		result := cluster.record(func() error {
			switch kind.Kind {
			case "KnativeServing":
				resource := &v1beta1.KnativeServing{}
				if err := json.Unmarshal(lines.Bytes(), resource); err != nil {
					return err
				}
				return outcome(serving.ReconcileKind(ctx, resource), resource.GetStatus())
			case "KnativeEventing":
				resource := &v1beta1.KnativeEventing{}
				if err := json.Unmarshal(lines.Bytes(), resource); err != nil {
					return err
				}
				return outcome(eventing.ReconcileKind(ctx, resource), resource.GetStatus())
			}
			return fmt.Errorf("unknown kind %q", kind.Kind)
		})
		if err := answer.Encode(result); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return lines.Err()
}

// outcome returns why a reconcile failed: its error, or that of a condition.
func outcome(err error, status base.KComponentStatus) error {
	if err != nil {
		return err
	}
	conditions, ok := status.(apis.ConditionsAccessor)
	if !ok {
		return errors.New("the status has no conditions")
	}
	for _, condition := range conditions.GetConditions() {
		if condition.Status == corev1.ConditionFalse && condition.Type != apis.ConditionReady {
			return errors.New(condition.Message)
		}
	}
	return nil
}
