package main

import "testing"

// TestWithTruncated: --truncated is a member of the kernel's configuration, so that a resume
// and a retry know it, and takes precedence over one that is there.
func TestWithTruncated(t *testing.T) {
	for _, test := range []struct{ kernel, config, value, want string }{
		{"openai:http://h/v1", "", "fail", `{"truncated":"fail"}`},
		{"serve:vllm", `{"model":"m","truncated":"keep"}`, "fail", `{"model":"m","truncated":"fail"}`},
		{"openai:http://h/v1", `{"model":"m"}`, "", `{"model":"m"}`},
		{"openai:http://h/v1", `[1]`, "fail", ""},
		{"echo", `{}`, "fail", ""},
	} {
		got, err := withTruncated(test.kernel, []byte(test.config), test.value)
		if string(got) != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%+v: %s, %v", test, got, err)
		}
	}
}
