package nearest

import "testing"

func TestOf(t *testing.T) {
	names := []string{"echo", "exec", "minhash", "a"}
	for name, want := range map[string]string{
		"ech": "echo", "ecco": "echo", "exce": "exec", "minhahs": "minhash", "minhash2": "minhash",
		"zzz": "", "python": "", "": "", "echo": "echo", "b": "",
	} {
		if got := Of(name, names, 3); got != want {
			t.Errorf("%q: %q instead of %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"colums": "columns", "colum": "column", "columnss": "columns", "cloumns": "columns"} {
		if got := Of(name, []string{"column", "columns"}, 3); got != want {
			t.Errorf("%q: %q instead of %q", name, got, want)
		}
	}
	if got := Of("eXho", names, 1); got != "" {
		t.Errorf("%q is not within the limit", got)
	}
}
