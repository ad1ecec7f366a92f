package python_test

import "testing"

// A record whose result has an _error skips the next steps and fails with the name of the
// step that rejected it; null is not an error.
func TestErrorMemberInSteps(t *testing.T) {
	for name, first := range map[string]string{
		"lines":   "def process(batch): return [{'n': r['n'], '_error': r['e']} for r in batch]",
		"records": "def process(batch):\n    for r in batch: r['_error'] = r['e']\n    return list(batch)",
		"columns": "def process(batch): return {'_error': batch['e']}",
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t, first, then(t, "def process(batch): return [{'n': r['n']} for r in batch]"))
			expect(t, k, []string{`{"n":1,"e":null}`, `{"n":2,"e":"bad"}`, `{"n":3,"e":{"message":"worse"}}`, `{"n":4,"e":7}`},
				[]string{`{"n":1}`, "failed: first.py: bad", "failed: first.py: worse", "failed: first.py: 7"})
		})
	}
}
