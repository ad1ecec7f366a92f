package orchestrator_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// A member that the kernel needs and none of the first records has is named before work
// starts.
func TestNeededMembers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ input, needs, want string }{
		{"{\"id\":1,\"text\":\"x\"}\n", `["text"]`, ""},
		{"{\"id\":1}\n{\"id\":2,\"text\":\"x\"}\n", `["text"]`, ""}, // a bad record costs only itself
		{"{\"id\":1,\"text\":\"x\"}\n", `["id","txt"]`, `the first record has no member "txt", which the kernel needs; did you mean text?`},
		{"{\"id\":1,\"text\":\"x\"}\n", `["question"]`, `the members are id, text`},
		{"not JSON\n[1]\n{\"id\":1,\"_error\":{}}\n", `["text"]`, ""}, // nothing to go by
		{"", `["text"]`, ""},
	} {
		d, c := callsJob(t, test.input, 2)
		c.Kernel.Config = fmt.Appendf(nil, `{"Calls":%q,"Needs":%s}`, d.join("calls"), test.needs)
		_, err := orchestrator.MakePlan(t.Context(), c)
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", test.input, err)
			}
			continue
		}
		wantFault(t, err, fault.Usage, test.want)
	}
}

// The same for inputs that are not one plain file. A stream is checked before any record of it
// reaches a kernel.
func TestNeededMembersOfInputs(t *testing.T) {
	t.Parallel()
	const good, bad = "{\"id\":1,\"text\":\"x\"}\n", "{\"id\":1,\"txet\":\"x\"}"
	compress := func(text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		return b.String()
	}
	const lacks = `the first %s no member "text", which the kernel needs; did you mean txet?`
	for name, test := range map[string]struct {
		files map[string]string
		stdin string
		want  string // the error
		note  string
	}{
		"several":     {files: map[string]string{"a.jsonl": bad, "b.jsonl": bad}, want: fmt.Sprintf(lacks, "2 records have")},
		"compressed":  {files: map[string]string{"a.jsonl.gz": compress(bad)}, want: fmt.Sprintf(lacks, "record has")},
		"csv":         {files: map[string]string{"a.csv": "id,txet\n1,x\n2,y\n"}, want: fmt.Sprintf(lacks, "2 records have")},
		"one of two":  {files: map[string]string{"a.jsonl": good, "b.jsonl": bad}, note: `the first record of b.jsonl has no member "text"`},
		"good":        {files: map[string]string{"a.jsonl.gz": compress(good), "b.csv": "id,text\n1,x\n"}},
		"stream":      {stdin: bad + "\n", want: fmt.Sprintf(lacks, "record has")},
		"good stream": {stdin: good},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, c := callsJob(t, "", 2)
			c.Kernel.Config = fmt.Appendf(nil, `{"Calls":%q,"Needs":["text"]}`, d.join("calls"))
			c.Input.Path, c.Input.Paths = "", nil
			for _, file := range slices.Sorted(maps.Keys(test.files)) {
				d.write(file, test.files[file])
				c.Input.Paths = append(c.Input.Paths, d.join(file))
			}
			if test.stdin != "" {
				c.Input.Path, c.Input.Stdin = "-", strings.NewReader(test.stdin)
			}
			noted := false
			watch(&c, func(_ string, _ int, event orchestrator.Event) {
				notice, ok := event.(orchestrator.Notice)
				noted = noted || ok && strings.Contains(strings.ReplaceAll(notice.Text, d.path+"/", ""), test.note)
			})
			_, err := run(t, c)
			if test.want != "" {
				wantFault(t, err, fault.Usage, test.want)
				if called(d.join("calls")) > 0 {
					t.Error("the kernel was called")
				}
				return
			}
			if err != nil || test.note != "" && !noted {
				t.Errorf("%v, noted: %v", err, noted)
			}
		})
	}
}
