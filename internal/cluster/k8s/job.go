// Package k8s writes the manifest of an Indexed Job of Kubernetes that computes the shards
// of a run.
package k8s

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"text/template"
)

// Job is a run as Kubernetes sees it: a pod per shard.
type Job struct {
	Name, Namespace string
	Image           string
	// Program is gpurun in the image, Args its arguments.
	Program string
	Args    []string
	// Status is the command in a pod that shows how far the run is.
	Status string
	// Shards is the number of pods, Nodes how many of them run at a time.
	Shards, Nodes int
	// GPUs, CPUs and Memory are what each pod gets; "" for CPUs and Memory that are not limited.
	GPUs         int
	CPUs, Memory string
	// Claim is the volume claim with input and output, Mount its folder in the pod.
	Claim, Mount string
	// User is the user and group that the pod runs as; never root.
	User int
	// NodeSelector selects nodes by label: KEY=VALUE.
	NodeSelector []string
	// Tolerations are taints that the pod accepts, besides the taint of GPUs: KEY or KEY=VALUE.
	Tolerations []string
	// Retries is how often a failed pod of one shard is replaced.
	Retries int
	// Comment is a line for the reader.
	Comment string
}

//go:embed job.yaml.tmpl
var text string

// manifest is parsed when it is needed: every process of a job has this package.
var manifest = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("job").Funcs(template.FuncMap{
		"quote": strconv.Quote, "key": key, "value": value, "literal": literal,
	}).Parse(text))
})

// Manifest returns the Job as YAML.
func (j Job) Manifest() string {
	var b strings.Builder
	if err := manifest().Execute(&b, j); err != nil {
		panic(err) // the template fits the type
	}
	return b.String()
}

// literal protects an argument from Kubernetes, which replaces $(NAME).
func literal(arg string) string { return strings.ReplaceAll(arg, "$(", "$$(") }

func key(pair string) string {
	before, _, _ := strings.Cut(pair, "=")
	return before
}

// value returns what follows the equals sign; "" if there is none.
func value(pair string) string {
	_, after, _ := strings.Cut(pair, "=")
	return after
}

// Name turns a text into the name of an object: lowercase letters, digits and dashes.
func Name(text string) string {
	name := strings.Join(strings.FieldsFunc(strings.ToLower(text), func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9')
	}), "-")
	return strings.Trim(name[:min(len(name), 50)], "-") // pods add an index and a suffix
}
