// Programs of Pods in tests.
module knative-operator/tests/tools/workload

go 1.26.0
