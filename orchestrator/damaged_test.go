package orchestrator_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// compressors return a text as a compressed file that ends with its checksum.
var compressors = map[string]func(text string) []byte{
	"gzip": func(text string) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		return b.Bytes()
	},
	"zstd": func(text string) []byte {
		z, _ := zstd.NewWriter(nil, zstd.WithEncoderCRC(true))
		return z.EncodeAll([]byte(text), nil)
	},
}

// altered returns a compressed file with altered content and the checksum of the original.
func altered(format, original, now string) []byte {
	file, was := compressors[format](now), compressors[format](original)
	if format == "gzip" { // the length follows
		copy(file[len(file)-8:len(file)-4], was[len(was)-8:len(was)-4])
	} else {
		copy(file[len(file)-4:], was[len(was)-4:])
	}
	return file
}

// TestRepairedInputResumes: a wrong checksum is found at the end of a file, when results of its
// records are committed. Once the file is repaired, the same command computes again what differs,
// and everything after it.
func TestRepairedInputResumes(t *testing.T) {
	t.Parallel()
	const n = 200
	good := strings.Replace(numbered(n), `"id":40`, `"id":40,"sleep":700`, 1) // of a concurrent kernel: answers behind it wait
	for _, one := range []struct {
		name, format string
		chunk        int64  // records
		now          string // what the damaged file holds
		again        int64  // records that are computed again at least
		change       func(d jobDir, c *orchestrator.Config)
	}{
		{"a record", "gzip", 20, strings.Replace(good, `"id":57`, `"id":75`, 1), n - 40, nil},
		{"a record", "zstd", 20, strings.Replace(good, `"id":57`, `"id":75`, 1), n - 40, nil},
		{"a record of a single chunk", "gzip", 1000, strings.Replace(good, `"id":57`, `"id":75`, 1), n, nil},
		{"a line feed", "gzip", 20, strings.Replace(good, "57}\n", "57} ", 1), n - 40, nil},
		{"the last record", "gzip", 20, strings.Replace(good, `"id":199`, `"id":991`, 1), 20, nil},
		{"a line more", "gzip", 20, good + "{}\n", 0, nil},
		{"a line less", "gzip", 20, strings.TrimSuffix(good, "{\"id\":199}\n"), 0, nil},
		{"only the checksum", "gzip", 20, good, 0, nil},
		{"a record, compressed output", "gzip", 20, strings.Replace(good, `"id":57`, `"id":75`, 1), n - 40, func(d jobDir, c *orchestrator.Config) {
			c.Output.Path = d.join("out.jsonl.zst")
		}},
		{"a record, parts", "gzip", 20, strings.Replace(good, `"id":57`, `"id":75`, 1), n - 40, func(d jobDir, c *orchestrator.Config) {
			c.Output.Path, c.Output.PartBytes = d.join("out")+"/", 300
		}},
		{"a record, answers logged", "gzip", 20, strings.Replace(good, `"id":57`, `"id":75`, 1), n - 40, func(d jobDir, c *orchestrator.Config) {
			c.Kernel.Name, c.Kernel.Config = "test-calls", []byte(fmt.Sprintf(`{"Calls":%q}`, d.join("calls")))
		}},
		{"a record of one of several files", "gzip", 20, strings.Replace(good, `"id":57`, `"id":75`, 1), n - 40, func(d jobDir, c *orchestrator.Config) {
			d.write("a.jsonl", good)
			c.Input.Path, c.Input.Paths = "both", []string{d.join("a.jsonl"), c.Input.Path}
		}},
	} {
		t.Run(one.format+" "+one.name, func(t *testing.T) {
			t.Parallel()
			d := newJobDir(t, "")
			c := d.config("echo")
			c.Batching.Size, c.Input.ChunkRecords = 5, one.chunk
			if one.change != nil {
				one.change(d, &c)
			}
			c = orchestrator.WithUnitBytes(c, 200)
			want := map[string]string{"out.jsonl": good} // of echo
			if one.change != nil {
				d.write("in.jsonl", string(compressors[one.format](good)))
				mustRun(t, d, c)
				want = outputFiles(d, c)
				for _, path := range []string{c.Output.Path, jobFolder(c)} {
					if err := os.RemoveAll(path); err != nil {
						t.Fatal(err)
					}
				}
			}
			d.write("in.jsonl", string(altered(one.format, good+"\n", one.now)))
			_, err := run(t, c)
			wantFault(t, err, fault.Storage, "in.jsonl", "checksum mismatch", "may be altered", "[bad-input ]")
			d.write("in.jsonl", string(compressors[one.format](good)))
			report := mustRun(t, d, c)
			if again := report.In - report.Resumed; again < one.again {
				t.Errorf("%d records were computed again, want %d", again, one.again)
			}
			if got := outputFiles(d, c); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the output is not that of the repaired file: %q, want %q", got, want)
			}
		})
	}
}

// TestRepairedInputsResume: who repairs a damaged file repairs the others, too, also those that
// the job has not reached.
func TestRepairedInputsResume(t *testing.T) {
	t.Parallel()
	good := numbered(100)
	d := newJobDir(t, "")
	c := d.config("echo")
	c.Batching.Size, c.Input.ChunkRecords = 5, 20
	c.Input.Path, c.Input.Paths = "all", []string{d.join("a.gz"), d.join("b.gz"), d.join("c.gz")}
	d.write("a.gz", string(compressors["gzip"](good)))
	for _, name := range []string{"b.gz", "c.gz"} {
		d.write(name, string(altered("gzip", good, strings.Replace(good, `"id":57`, `"id":75`, 1))))
	}
	_, err := run(t, c)
	wantFault(t, err, fault.Storage, "b.gz", "checksum mismatch")
	d.write("a.gz", string(compressors["gzip"](strings.Replace(good, `"id":57`, `"id":75`, 1))))
	_, err = run(t, c)
	wantFault(t, err, fault.Conflict, "a.gz", "has changed")
	for _, name := range []string{"a.gz", "b.gz", "c.gz"} {
		d.write(name, string(compressors["gzip"](good)))
	}
	if mustRun(t, d, c); d.read("out.jsonl") != good+good+good {
		t.Errorf("output %q", d.read("out.jsonl"))
	}
}

// TestRepairedInputAfterSkip: a job that has skipped the rest of a damaged file, and is resumed
// when that is repaired, computes all of it, and the files that follow.
func TestRepairedInputAfterSkip(t *testing.T) {
	t.Parallel()
	good := numbered(400)
	d := newJobDir(t, "")
	c := slowJob(d)
	c.Input.SkipBad, c.Input.ChunkRecords = true, 20
	c.Input.Path, c.Input.Paths = "both", []string{d.join("in.jsonl"), d.join("b.jsonl")}
	d.write("b.jsonl", good)
	d.write("in.jsonl", string(altered("gzip", good, strings.Replace(good, `"id":57}`+"\n", `"id":57} `, 1))))
	interrupted(t, c, 24)
	d.write("in.jsonl", string(compressors["gzip"](good)))
	for _, chunks := range []int{3, 3} { // and is interrupted again
		interrupted(t, c, chunks)
	}
	if report := mustRun(t, d, c); d.read("out.jsonl") != good+good || len(report.SkippedInputs) > 0 {
		t.Errorf("skipped %+v, output %q", report.SkippedInputs, d.read("out.jsonl"))
	}
}

// TestSkippedDamageIsNotSilent: records of a file with a wrong checksum are in the output, but the
// job reports that they may be altered, also if machines share it and no record follows the
// damage.
func TestSkippedDamageIsNotSilent(t *testing.T) {
	t.Parallel()
	const n = 60000 // more than is read at once
	good := numbered(n)
	d := newJobDir(t, "")
	good = strings.NewReplacer(`{"id":`, "", "}", "").Replace("id\n" + good) // a table returns its rows before the error
	d.write("in.jsonl", string(altered("gzip", good, strings.Replace(good, "57", "75", 1))))
	c := d.config("echo")
	c.Input.SkipBad, c.Input.Format = true, "csv"
	check := func(skipped []orchestrator.SkippedInput) {
		t.Helper()
		if len(skipped) != 1 || !strings.Contains(skipped[0].Message, "may be altered") {
			t.Errorf("skipped: %+v", skipped)
		}
	}
	report := mustRun(t, d, c)
	check(report.SkippedInputs)
	c.Output.Path = d.join("last.jsonl")
	s, err := orchestrator.MakeSurvey(context.Background(), c, 2)
	if err != nil {
		t.Fatal(err)
	}
	c.Input.Offset, c.Input.Limit, c.Input.Counts = n/2, n/2, s.Index.Files
	check(mustRun(t, d, c).SkippedInputs)
}
