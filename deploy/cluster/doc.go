// Package cluster runs the Job that gpurun submit k8s prints on a real control plane of
// Kubernetes (etcd, kube-apiserver, kube-controller-manager, kube-scheduler), and disturbs
// it. A stand-in for the kubelet runs pods as processes, each in namespaces of its own, since
// a real one needs a container runtime. It is a separate module, because gpurun does not
// depend on Kubernetes; make k8s-test builds the servers and runs it.
package cluster
