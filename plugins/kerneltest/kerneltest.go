package kerneltest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// Options is what the checks must be told of a kernel. The zero value suits one
// that takes any record and needs no configuration.
type Options struct {
	// Config is given to Describe and Open.
	Config plugins.Config
	// Device is where the kernel is opened; the zero value means a CPU.
	Device plugins.Device
	// Records are samples of what the kernel computes with, each a JSON value.
	// They should differ from each other. None means objects with the members
	// "id" and "text".
	Records []string
	// Neighbours: the result for a record may depend on the other records of its
	// batch, so results in different batches are not compared.
	Neighbours bool
	// Tolerance is how far two numbers may be apart and still be the same,
	// relative to the larger: devices sum in another order when batches differ.
	// 0 means 0.0001; negative means that they must be equal.
	Tolerance float64
	// LargeBatch is the number of records in the large batch; 0 means 1000.
	LargeBatch int
	// Timeout is how long a check may take, opening included; 0 means a minute.
	Timeout time.Duration
	// Advise puts an advice into other words: those here are for who writes a test in
	// Go. nil leaves them.
	Advise func(advice string) string
}

const (
	defaultTimeout    = time.Minute
	defaultLargeBatch = 1000
	defaultTolerance  = 1e-4
)

// sampleRecords differ in length and in what they hold.
var sampleRecords = []string{
	`{"id":1,"text":"The quick brown fox jumps over the lazy dog."}`,
	`{"id":2,"text":"A second record, a little longer than the first one: it has two clauses."}`,
	`{"id":3,"text":"third"}`,
	`{"id":4,"text":""}`,
	`{"id":5,"text":"five words in this record","tags":["a","b"],"nested":{"deep":[1,2.5,-3e2,true,null]}}`,
	`{"text":"the id may stand last, and spaces where nobody expects them" , "id" : 6 }`,
	`{"id":7,"text":"The quick brown fox jumps over the lazy cat."}`,
}

func (o Options) withDefaults() Options {
	if o.Device == (plugins.Device{}) {
		o.Device = plugins.Device{Name: "CPU 0", Threads: 1}
	}
	if len(o.Records) == 0 {
		o.Records = sampleRecords
	}
	if o.Tolerance == 0 {
		o.Tolerance = defaultTolerance
	}
	if o.LargeBatch <= 0 {
		o.LargeBatch = defaultLargeBatch
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	return o
}

// Check is one thing that every kernel must do.
type Check struct {
	// Name is a few words with dashes.
	Name string
	// About says what is asked of the kernel, in one sentence.
	About string
	// Opened: Run gets a kernel that has been described and opened, and that it
	// leaves open; such checks may share one, so that a model is loaded once.
	// Otherwise Run gets a fresh one, and closes what it opens.
	Opened bool
	// Run returns nil, or what is wrong and what the author can do about it.
	Run func(ctx context.Context, k plugins.Kernel, o Options) error
}

// Checks returns all checks, in the order in which they make sense: what fails
// first is often the reason for what fails later.
func Checks() []Check {
	return []Check{
		{Name: "describe", About: "Describe is cheap and says the same each time.", Run: checkDescribe},
		{Name: "close-unopened", About: "A kernel that was only described can be closed: that is what a plan does.", Run: checkCloseUnopened},
		{Name: "open-close", About: "Open and Close work.", Run: checkOpenClose},
		{Name: "close-twice", About: "A second Close does no harm.", Run: checkCloseTwice},
		{Name: "verdicts", About: "Every record of a batch gets exactly one verdict.", Opened: true, Run: checkVerdicts},
		{Name: "useful", About: "At least one of the sample records does not fail.", Opened: true, Run: checkUseful},
		{Name: "valid-json", About: "Lines and column values are valid JSON, on one line.", Opened: true, Run: checkValidJSON},
		{Name: "batch-of-one", About: "Every sample record can be computed alone.", Opened: true, Run: checkBatchOfOne},
		{Name: "repeatable", About: "The same batch gives the same results again.", Opened: true, Run: checkRepeatable},
		{Name: "alone-or-together", About: "A record's result is the same alone and in a batch.", Opened: true, Run: checkAlone},
		{Name: "order", About: "Results stand in the order of the records.", Opened: true, Run: checkOrder},
		{Name: "large-batch", About: "A batch much larger than asked for is computed.", Opened: true, Run: checkLargeBatch},
		{Name: "unicode", About: "Text in any script and with any escape is computed or rejected.", Opened: true, Run: checkUnicode},
		{Name: "large-record", About: "A record of a megabyte is computed or rejected, and costs only itself.", Opened: true, Run: checkLargeRecord},
		{Name: "odd-records", About: "Records that are no objects, or lack members, are computed or rejected, and cost only themselves.", Opened: true, Run: checkOddRecords},
		{Name: "memory", About: "The batch is not changed, and not looked at once the results are complete.", Opened: true, Run: checkMemory},
		{Name: "in-flight", About: "A kernel that takes several batches at a time completes them in order.", Opened: true, Run: checkInFlight},
	}
}

// skipped is returned by a check that does not apply to the kernel.
type skipped string

func (s skipped) Error() string { return "skipped: " + string(s) }

// failure is a check's error: what is wrong, then what to do.
type failure struct {
	what error
	todo string
	// unusable: it is not the check that failed, but what comes before every one.
	unusable bool
}

func (f *failure) Error() string {
	return strings.TrimRight(fmt.Sprintf("%s.\n%s", f.what, f.todo), "\n")
}
func (f *failure) Unwrap() error { return f.what }

func fail(todo, format string, args ...any) error {
	return &failure{what: fmt.Errorf(format, args...), todo: todo}
}

// unusable is fail where the kernel cannot even be started, described or opened.
func unusable(todo, format string, args ...any) error {
	return &failure{what: fmt.Errorf(format, args...), todo: todo, unusable: true}
}
