package examples_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins/builtin"
	"github.com/gpurun/gpurun/worker"
)

// The test binary is the program, its workers and its kernels.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	worker.Init(builtin.Kernels())
	os.Exit(m.Run())
}

// pythonWith returns an interpreter that has the modules, and skips the test if there is
// none.
func pythonWith(t *testing.T, modules ...string) string {
	t.Helper()
	prepared, _ := filepath.Abs("../.venv/bin/python")
	for _, python := range []string{prepared, "python3"} {
		if exec.Command(python, "-c", "import "+strings.Join(modules, ", ")).Run() == nil {
			return python
		}
	}
	t.Skipf("SKIPPED: no Python with %s: the example is not tested (make venv installs it)", strings.Join(modules, " and "))
	return ""
}

// runExample runs a kernel over records that name the given files, and returns the lines of
// the output.
func runExample(t *testing.T, python, kernel, name string, files map[string][]byte, records ...string) []map[string]any {
	t.Helper()
	dir := t.TempDir()
	for file, data := range files {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
	if err := os.WriteFile(in, []byte(strings.Join(records, "\n")), 0o666); err != nil {
		t.Fatal(err)
	}
	kernel, err := filepath.Abs(kernel)
	if err != nil {
		t.Fatal(err)
	}
	_, err = orchestrator.Run(context.Background(), orchestrator.Config{
		Input: orchestrator.Input{Path: in}, Output: orchestrator.Output{Path: out},
		Kernel:  orchestrator.Kernel{Name: kernel, Python: python},
		Devices: orchestrator.Devices{GPUs: "cpu:1"},
		Fetch:   orchestrator.Fetch{Members: []orchestrator.FetchMember{{Name: name, Field: "file"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var lines []map[string]any
	for line := range bytes.Lines(data) {
		var values map[string]any
		if err := json.Unmarshal(line, &values); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, values)
	}
	if len(lines) != len(records) {
		t.Fatalf("%d records became %s", len(records), data)
	}
	return lines
}

func pngOf(t *testing.T, fill color.Color, width, height int) []byte {
	t.Helper()
	picture := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			picture.Set(x, y, fill)
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, picture); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestImages(t *testing.T) {
	python := pythonWith(t, "numpy", "PIL")
	files := map[string][]byte{
		"red.png": pngOf(t, color.RGBA{255, 0, 0, 255}, 8, 8), "white.png": pngOf(t, color.White, 100, 7), "bad.png": []byte("no image"),
	}
	lines := runExample(t, python, "images/colors.py", "image", files,
		`{"file":"red.png"}`, `{"file":"bad.png"}`, `{"file":"white.png"}`, `{"file":"none.png"}`)
	if got := fmt.Sprint(lines[0]["color"], lines[0]["contrast"]); got != "[1 0 0] 0.471" {
		t.Errorf("red: %v", lines[0])
	}
	if got := fmt.Sprint(lines[2]["color"], lines[2]["contrast"]); got != "[1 1 1] 0" {
		t.Errorf("white: %v", lines[2])
	}
	if got := fmt.Sprint(lines[1]["_error"]); !strings.Contains(got, "cannot decode the image: UnidentifiedImageError") {
		t.Errorf("bad: %v", lines[1])
	}
	if got := fmt.Sprint(lines[3]["_error"]); !strings.Contains(got, "kind:fetch") {
		t.Errorf("none: %v", lines[3])
	}
}

// wavOf returns a recording of a tone.
func wavOf(seconds, amplitude float64, bits int) []byte {
	const rate = 8000
	samples := make([]int16, int(seconds*rate))
	for i := range samples {
		samples[i] = int16(32767 * amplitude * math.Sin(float64(i)*2*math.Pi*440/rate))
	}
	var b bytes.Buffer
	write := func(values ...any) {
		for _, value := range values {
			_ = binary.Write(&b, binary.LittleEndian, value) // a buffer never fails
		}
	}
	write([]byte("RIFF"), uint32(36+2*len(samples)), []byte("WAVEfmt "), uint32(16), uint16(1), uint16(1),
		uint32(rate), uint32(rate*bits/8), uint16(bits/8), uint16(bits), []byte("data"), uint32(2*len(samples)), samples)
	return b.Bytes()
}

func TestAudio(t *testing.T) {
	python := pythonWith(t, "wave")
	loud := wavOf(0.5, 1, 16)
	files := map[string][]byte{"loud.wav": loud, "quiet.wav": wavOf(0.25, 0.1, 16), "eight.wav": wavOf(0.1, 1, 8), "cut.wav": loud[:20]}
	lines := runExample(t, python, "audio/loudness.py", "audio", files,
		`{"file":"loud.wav"}`, `{"file":"quiet.wav"}`, `{"file":"eight.wav"}`, `{"file":"cut.wav"}`)
	if got := fmt.Sprint(lines[0]["seconds"], lines[0]["decibels"]); got != "0.5 -3" {
		t.Errorf("loud: %v", lines[0])
	}
	if got := fmt.Sprint(lines[1]["seconds"], lines[1]["decibels"]); got != "0.25 -23" {
		t.Errorf("quiet: %v", lines[1])
	}
	for _, i := range []int{2, 3} {
		if got := fmt.Sprint(lines[i]["_error"]); !strings.Contains(got, "cannot decode the recording") {
			t.Errorf("%v", lines[i])
		}
	}
}
