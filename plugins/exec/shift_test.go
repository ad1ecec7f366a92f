package exec_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/exec"
	"github.com/gpurun/gpurun/plugins/resolve"
)

func unrulyCommand(args string) string {
	return os.Args[0] + " unruly " + args
}

// job computes records as a worker does: it bisects a failed batch until it has isolated
// the bad records.
type job struct {
	t       *testing.T
	kernel  plugins.Kernel
	answers map[int]string
	marked  int
}

func newJob(t *testing.T, config resolve.ExecConfig) *job {
	return &job{t: t, kernel: open(t, config), answers: map[int]string{}}
}

// run computes the records from first to end, in batches that cycle through the sizes.
func (j *job) run(first, end int, sizes ...int) {
	j.t.Helper()
	for i := 0; first < end; i++ {
		next := min(end, first+sizes[i%len(sizes)])
		if err := j.settle(first, next); err != nil {
			j.t.Fatalf("records %d to %d: %v", first, next, err)
		}
		first = next
	}
}

func (j *job) settle(first, end int) error {
	records := make([]string, end-first)
	for i := range records {
		records[i] = fmt.Sprintf(`{"id":%d}`, first+i)
		delete(j.answers, first+i)
	}
	got, err := call(j.t, j.kernel, records...)
	switch {
	case err == nil:
		for i, answer := range got {
			j.answers[first+i] = answer
		}
		return nil
	case fault.KindOf(err) != fault.Batch:
		return err
	case end-first == 1:
		j.marked++
		return nil
	}
	middle := (first + end) / 2
	return errors.Join(j.settle(first, middle), j.settle(middle, end))
}

// check finds the answers that belong to another record.
func (j *job) check() {
	j.t.Helper()
	wrong := 0
	for n, answer := range j.answers {
		if want := fmt.Sprintf(`{"id":%d,"v":%d}`, n, 7*n); answer != want {
			if wrong++; wrong < 4 {
				j.t.Errorf("record %d: %s", n, answer)
			}
		}
	}
	if wrong > 0 {
		j.t.Errorf("%d of %d answers are wrong", wrong, len(j.answers))
	}
}

// An extra line never shifts the answers after it: the end of the output shows the count.
func TestSurplusLineNeverShiftsAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		args    string
		records int
		sizes   []int
		marked  int
	}{
		"in a batch":                 {"-one 43", 160, []int{64}, 1},
		"a warning":                  {`-one 43 -text "Warning: x"`, 160, []int{64}, 1},
		"with the last of a batch":   {"-one 63", 160, []int{64}, 1},
		"batches of one":             {"-one 11", 60, []int{1}, 1},
		"an empty line":              {"-one 20 -text ''", 96, []int{32}, 1},
		"not with a record alone":    {"-at 20", 96, []int{32}, 0},
		"a program that reads ahead": {"-one 43 -pool 64", 96, []int{32}, 1},
		"one that feeds a program":   {"-one 43 | cat", 96, []int{32}, 1},
		"and dies on another record": {"-one 43 -dies 63", 160, []int{64}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, resolve.ExecConfig{Command: unrulyCommand(test.args)})
			j.run(0, test.records, test.sizes...)
			j.check()
			if len(j.answers) != test.records-test.marked || j.marked != test.marked {
				t.Errorf("%d answers, %d marked", len(j.answers), j.marked)
			}
		})
	}
}

// Whatever a chaotic program writes at random, every accepted answer belongs to its
// record.
func TestChaoticProgramGivesNoWrongAnswer(t *testing.T) {
	for _, args := range []string{
		"-chance 0.01",
		"-chance 0.02 -late 5ms -delay 1ms",
		`-chance 0.01 -text "Warning: late" -late 1ms`,
		"-chance 0.005 -delay 500us -pool 64",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, resolve.ExecConfig{Command: unrulyCommand(args)})
			j.run(0, 400, 32, 7, 1, 60)
			j.check()
			t.Logf("%d answers, %d marked", len(j.answers), j.marked)
		})
	}
}

// With an identity every line proves its place, whatever the program does and however it
// reads.
func TestIdentityProvesEachLine(t *testing.T) {
	for _, args := range []string{"-chance 0.02 -late 5ms", "-chance 0.02 -delay 1ms -pool 64", "-chance 0.01 -text ''"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, resolve.ExecConfig{Command: unrulyCommand(args), Mode: exec.ModeStream, ID: "id"})
			j.run(0, 300, 50, 1, 20)
			j.check()
		})
	}
}

func TestIdentity(t *testing.T) {
	for _, mode := range []string{exec.ModeStream, exec.ModeBatch} {
		t.Run(mode, func(t *testing.T) {
			// The same value may be written differently.
			k := open(t, resolve.ExecConfig{Mode: mode, ID: "id", Command: `sed -u 's/"a/"\\u0061/; s/:1,/:1.0,/'`})
			expect(t, k, []string{`{"id":1,"x":2}`, `{"id":"ab"}`}, []string{`{"id":1.0,"x":2}`, `{"id":"\u0061b"}`})
			// A record that cannot be identified is not sent to the program.
			expect(t, k, []string{`{"id":3}`, `{"x":4}`, `{"id":null}`, `7`, `{"id":5}`}, []string{
				`{"id":3}`,
				`failed: exec: the record has no member "id", which exec-id needs to check the answer`,
				`failed: exec: member "id" is neither a string nor a number, so exec-id cannot check the answer`,
				`failed: exec: the record has no member "id", which exec-id needs to check the answer`,
				`{"id":5}`,
			})
			expect(t, k, []string{`{"x":4}`}, []string{`failed: exec: the record has no member "id", which exec-id needs to check the answer`})
			// An empty line drops its record.
			k = open(t, resolve.ExecConfig{Mode: mode, ID: "id", Command: `sed -u 's/.*drop.*//'`})
			expect(t, k, []string{`{"id":1}`, `{"id":2,"drop":1}`, `{"id":3}`, `{"id":4,"drop":1}`}, []string{`{"id":1}`, "drop", `{"id":3}`, "drop"})
			for command, says := range map[string]string{
				`sed -u 's/id/other/'`:       `no member "id"`,
				`sed -u 's/1/2/'`:            `member "id" is 12 in the record and 22 in the line`,
				`sed -u 's/12/"12"/'`:        `member "id" is 12 in the record and "12" in the line`,
				`sed -u 's/.*/[1]/'`:         `not a JSON object`,
				`sed -u 's/12/12.5/'`:        `12.5`,
				`sed -u 's/{.*/Warning: x/'`: `not a JSON object`,
			} {
				_, err := call(t, open(t, resolve.ExecConfig{Mode: mode, ID: "id", Command: command}), `{"id":12}`)
				if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "exec-id") || fault.KindOf(err) != fault.Batch {
					t.Errorf("%s: %v", command, err)
				}
			}
		})
	}
	c := config(t, resolve.ExecConfig{Command: "cat", Mode: exec.ModePerRecord, ID: "id"})
	if _, err := exec.New().Describe(t.Context(), c); fault.KindOf(err) != fault.Usage || fault.As(err).Value != "exec-id" {
		t.Errorf("per record: %v", err)
	}
}
