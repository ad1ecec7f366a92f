package python_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A job of 20,000 s with simulated rates: RATE is the throughput of n concurrent batches,
// GOOD whether n is right once there was time to find out.
const pacedJob = `
import random
chance, now, half = random.Random(1), 0.0, 10000
pace = Pace(4, clock=lambda: now)
good = judged = 0
while now < 2 * half:
    n, later = pace.wanted, now > half
    assert 2 <= n <= 6
    if WAITS: pace.waits()
    now += 0.25 / (RATE) * chance.uniform(0.9, 1.1)
    pace.taken()
    if (now % half) > half / 2:
        judged += 1
        good += bool(GOOD)
assert good > 0.9 * judged, (good, judged)
`

// The number of concurrently prepared batches follows the measured throughput.
func TestPace(t *testing.T) {
	needPython(t)
	pace, err := os.ReadFile("runner/ahead.py")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ waits, rate, good string }{
		"the GPU is the slowest":                      {"False", "1", "n <= 3"},
		"threads that wait for a disk":                {"True", "min(n, 4)", "n >= 4"},
		"threads that contend with each other":        {"True", "1 / (1 + 0.05 * n)", "n <= 3"},
		"a few are best":                              {"True", "{2: 0.8, 3: 1.0, 4: 0.9, 5: 0.85, 6: 0.8}[n]", "n == 3"},
		"the work changes in the middle, and is more": {"True", "min(n, 4) / 10 if later else 1 / (1 + 0.1 * n)", "(n >= 4) if later else (n <= 3)"},
		"the work changes in the middle, and is less": {"True", "1 / (1 + 0.1 * n) if later else min(n, 4) / 10", "(n <= 3) if later else (n >= 4)"},
	} {
		t.Run(name, func(t *testing.T) {
			job := strings.NewReplacer("WAITS", c.waits, "RATE", c.rate, "GOOD", c.good).Replace(pacedJob)
			if out, err := exec.Command("python3", "-c", string(pace)+job).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
