package kerneltest

import (
	"cmp"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// Options describes the kernel to the checks. The zero value suits a kernel that
// accepts any record and needs no configuration.
type Options struct {
	// Config is passed to Describe and Open.
	Config plugins.Config
	// Device is where the kernel is opened; the zero value means a CPU.
	Device plugins.Device
	// Records are sample inputs, each a JSON value. They should differ from each
	// other. The default is a set of objects with the members "id" and "text".
	Records []string
	// Neighbors allows the result for a record to depend on the other records of its
	// batch. Results from different batches are then not compared.
	Neighbors bool
	// Tolerance is the largest difference at which two numbers still count as equal, relative
	// to the larger one, or to the largest of the list that they are in: devices sum in a different order when the batch size changes. 0 means
	// 0.0001; a negative value requires exact equality.
	Tolerance float64
	// LargeBatch is the number of records in the large-batch check; 0 means 1000.
	LargeBatch int
	// Timeout limits each check, including Open; 0 means one minute.
	Timeout time.Duration
}

const (
	defaultTimeout    = time.Minute
	defaultLargeBatch = 1000
	defaultTolerance  = 1e-4
)

// sampleRecords vary in length, shape and spacing.
var sampleRecords = []string{
	`{"id":1,"text":"The quick brown fox jumps over the lazy dog."}`,
	`{"id":2,"text":"A second record, a little longer than the first one: it has two clauses."}`,
	`{"id":3,"text":"third"}`,
	`{"id":4,"text":""}`,
	`{"id":5,"text":"five words in this record","tags":["a","b"],"nested":{"deep":[1,2.5,-3e2,true,null]}}`,
	`{"text":"the id may come last, with spaces in unexpected places" , "id" : 6 }`,
	`{"id":7,"text":"The quick brown fox jumps over the lazy cat."}`,
}

func (o Options) withDefaults() Options {
	if o.Device == (plugins.Device{}) {
		o.Device = plugins.Device{Name: "CPU 0", Threads: 1}
	}
	if len(o.Records) == 0 {
		o.Records = sampleRecords
	}
	o.Tolerance = cmp.Or(o.Tolerance, defaultTolerance)
	o.LargeBatch = cmp.Or(o.LargeBatch, defaultLargeBatch)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	return o
}

// Check is one requirement that every kernel must meet.
type Check struct {
	// Name is a short name with dashes.
	Name string
	// About states the requirement in one sentence.
	About string
	// Opened means that the check gets a kernel that is already described and open, and must
	// leave it open: such checks share one kernel, so that a model is loaded once.
	// Otherwise it gets a fresh kernel and closes what it opens.
	Opened bool
	run    func(trial)
}

// Checks returns all checks in the order to run them: an early failure often explains
// the later ones.
func Checks() []Check {
	return []Check{
		{"describe", "Describe is cheap and returns the same answer each time.", false, checkDescribe},
		{"close-unopened", "A kernel that was described but never opened can be closed, as plan does.", false, checkCloseUnopened},
		{"open-close", "Open and Close succeed.", false, checkOpenClose},
		{"close-twice", "A second Close is harmless.", false, checkCloseTwice},
		{"verdicts", "Every record of a batch gets exactly one verdict.", true, checkVerdicts},
		{"useful", "At least one of the sample records does not fail.", true, checkUseful},
		{"valid-json", "Lines and column values are valid JSON, on one line.", true, checkValidJSON},
		{"batch-of-one", "Every sample record can be computed in a batch of its own.", true, checkBatchOfOne},
		{"repeatable", "The same batch gives the same results every time.", true, checkRepeatable},
		{"alone-or-together", "A record's result is the same alone and in a batch.", true, checkAlone},
		{"order", "Results are in the order of the records.", true, checkOrder},
		{"large-batch", "A batch much larger than requested is computed.", true, checkLargeBatch},
		{"unicode", "Text in any script and with any escape is computed or rejected.", true, checkUnicode},
		{"large-record", "A record of one megabyte is computed or rejected without affecting others.", true, checkLargeRecord},
		{"odd-records", "Records that are not objects, or lack members, are computed or rejected without affecting others.", true, checkOddRecords},
		{"memory", "The kernel does not modify a batch, nor read it after its results are complete.", true, checkMemory},
		{"in-flight", "A kernel with several batches in flight completes them in order.", true, checkInFlight},
		{"concurrent", "A concurrent kernel answers records at the same time as it does one by one.", true, checkConcurrent},
		{"give-up", "A concurrent kernel gives up a record when asked to.", true, checkGiveUp},
	}
}
