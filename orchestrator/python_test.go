package orchestrator_test

import (
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// A kernel that returns too few values for every batch is reported with the counts of
// the batch: that it returns none for a single record is only an artifact of bisecting.
func TestTooFewValuesNamesTheBatch(t *testing.T) {
	t.Parallel()
	needPython(t)
	d := newJobDir(t, numbered(1000))
	d.write("kernel.py", "def process(batch): return {'x': [1] * (len(batch) - 1)}\n")
	c := d.config(d.join("kernel.py"))
	c.BatchSize = 128
	_, err := run(t, c)
	wantFault(t, err, fault.Incompatible, "process returned 127 values in column 'x' for 128 records")
}
