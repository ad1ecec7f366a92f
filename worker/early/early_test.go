package early

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func answerFor(n int64) Answer {
	return Answer{Verdict: 2, Lines: [][]byte{fmt.Appendf(nil, `{"id":%d}`, n), []byte(`"ü"`)}, Nulls: n % 3}
}

// newLog returns an empty log.
func newLog(dir string, first, end int64) *Log { return New(dir, first, end, NewSyncer()) }

// filled returns a log with answers for the records from first to before end.
func filled(t *testing.T, dir string, first, end int64) *Log {
	t.Helper()
	l := newLog(dir, first, end)
	t.Cleanup(l.Close)
	for n := first; n < end; n++ {
		if err := l.Add(n, answerFor(n)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func check(t *testing.T, l *Log, first, end int64) {
	t.Helper()
	for n := first; n < end; n++ {
		got, err := l.Get(n)
		if err != nil || !reflect.DeepEqual(got, answerFor(n)) {
			t.Errorf("record %d: %+v, %v", n, got, err)
		}
	}
	if entries := int64(len(l.places)); entries != end-first {
		t.Errorf("%d entries, want %d", entries, end-first)
	}
}

func logs(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestImport(t *testing.T) {
	dir := t.TempDir()
	dead := filled(t, dir, 10, 20)
	dead.Close()
	l := newLog(dir, 8, 20)
	defer l.Close()
	for n := int64(8); n < 12; n++ {
		if err := l.Add(n, answerFor(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Import(); err != nil {
		t.Fatal(err)
	}
	check(t, l, 8, 20)
	if got := logs(t, dir); len(got) != 1 {
		t.Errorf("the log of the dead worker is still there: %v", got)
	}
}

// A log that a worker uses, or that holds answers for others, stays.
func TestImportLeaves(t *testing.T) {
	dir := t.TempDir()
	alive := filled(t, dir, 10, 20)
	other := filled(t, dir, 15, 30)
	other.Close()
	l := newLog(dir, 10, 20)
	defer l.Close()
	if err := l.Import(); err != nil {
		t.Fatal(err)
	}
	check(t, l, 10, 20)
	if got := logs(t, dir); len(got) != 3 {
		t.Errorf("logs are gone: %v", got)
	}
	check(t, alive, 10, 20)
}

// At the end of a part, the log is renamed after it if little in it is behind the part, and
// continued otherwise. Nothing is lost either way.
func TestRotate(t *testing.T) {
	for end, continued := range map[int64]bool{7: false, 2: true} {
		dir := t.TempDir()
		l := filled(t, dir, 0, 10)
		part := filepath.Join(dir, "000000000000-part")
		if err := l.Rotate(end, part); err != nil {
			t.Fatal(err)
		}
		if err := l.Add(10, answerFor(10)); err != nil {
			t.Fatal(err)
		}
		for n := end; n < 11; n++ {
			if got, err := l.Get(n); err != nil || !reflect.DeepEqual(got, answerFor(n)) {
				t.Errorf("record %d: %+v, %v", n, got, err)
			}
		}
		if _, err := os.Stat(part + Suffix); os.IsNotExist(err) != continued {
			t.Errorf("continued: %t, %v", continued, err)
		}
		again := newLog(dir, 0, 11)
		defer again.Close()
		if err := again.Import(); err != nil {
			t.Fatal(err)
		}
		check(t, again, 0, 11)
		if _, err := os.Stat(part + Suffix); !os.IsNotExist(err) { // its worker has closed it, and all of it was imported
			t.Errorf("%v", err)
		}
	}
}

// A log that has no answers for the chunk is not read, unless its range is damaged.
func TestImportByRange(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, 10, 20)
	for damage, want := range map[byte]bool{0: true, 1: false} {
		data, err := os.ReadFile(logs(t, dir)[0])
		if err != nil {
			t.Fatal(err)
		}
		data[headerSize+1] ^= damage
		read, known := 0, false
		each(bytes.NewReader(data), func(number int64, a Answer) bool {
			read++
			known = a.Verdict == chunkRange && number == 10 && a.Nulls == 20
			return number < 0
		})
		if known != want || read > 1 {
			t.Errorf("damage %d: known %t, %d entries read", damage, known, read)
		}
	}
	if Holds(dir, 0, 10) || Holds(dir, 20, 30) || !Holds(dir, 19, 30) {
		t.Error("the wrong records are held")
	}
}

// A worker finds the failures that it has logged, also after the end of a part. Other workers do
// not import them.
func TestFailures(t *testing.T) {
	dir := t.TempDir()
	l := filled(t, dir, 0, 3)
	failure := Answer{Verdict: Failure, Lines: [][]byte{[]byte(`{"message":"no"}`)}}
	if err := l.Add(3, failure); err != nil {
		t.Fatal(err)
	}
	if err := l.Put(1000, answerFor(1000)); err != nil {
		t.Fatal(err)
	}
	if err := l.Rotate(2, filepath.Join(dir, "000000000000-part")); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Get(3); err != nil || !reflect.DeepEqual(got, failure) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := l.Get(1000); err != nil || !reflect.DeepEqual(got, answerFor(1000)) {
		t.Errorf("%+v, %v", got, err)
	}
	other := newLog(dir, 0, 2000)
	defer other.Close()
	if err := other.Import(); err != nil {
		t.Fatal(err)
	}
	if other.Has(3) || !other.Has(2) || !other.Has(1000) {
		t.Errorf("imported %v", other.places)
	}
}

func TestRotateWithoutAnswers(t *testing.T) {
	dir := t.TempDir()
	l := newLog(dir, 0, 9)
	if err := l.Rotate(5, filepath.Join(dir, "part")); err != nil || len(logs(t, dir)) != 0 {
		t.Errorf("%v, %v", err, logs(t, dir))
	}
}

// TestDamaged: whatever happened to a log, its intact beginning is used and nothing else.
func TestDamaged(t *testing.T) {
	whole := func() []byte {
		dir := t.TempDir()
		filled(t, dir, 0, 3)
		data, err := os.ReadFile(logs(t, dir)[0])
		if err != nil {
			t.Fatal(err)
		}
		return data[headerSize+3:] // without its range
	}()
	one := len(whole) / 3
	tests := map[string]struct {
		damage func([]byte) []byte
		intact int64
	}{
		"intact":             {func(b []byte) []byte { return b }, 3},
		"empty":              {func([]byte) []byte { return nil }, 0},
		"torn header":        {func(b []byte) []byte { return b[:2*one+5] }, 2},
		"torn entry":         {func(b []byte) []byte { return b[:len(b)-1] }, 2},
		"flipped byte":       {func(b []byte) []byte { b[one+headerSize+4] ^= 1; return b }, 1},
		"flipped number":     {func(b []byte) []byte { b[one+8] ^= 1; return b }, 1},
		"huge length":        {func(b []byte) []byte { b[one+3] = 0xff; return b }, 1},
		"zeros at the end":   {func(b []byte) []byte { return append(b, make([]byte, 100)...) }, 3},
		"garbage at the end": {func(b []byte) []byte { return append(b, bytes.Repeat([]byte("x"), 100)...) }, 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "1-a"+Suffix), test.damage(bytes.Clone(whole)), 0o600); err != nil {
				t.Fatal(err)
			}
			l := newLog(dir, 0, 100)
			defer l.Close()
			if err := l.Import(); err != nil {
				t.Fatal(err)
			}
			check(t, l, 0, test.intact)
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(answerFor(1).encode(nil))
	f.Add([]byte{2, 0, 255, 255, 255, 255, 15})
	f.Fuzz(func(t *testing.T, data []byte) {
		if a, err := decode(data); err == nil {
			if again, err := decode(a.encode(nil)); err != nil || !reflect.DeepEqual(a, again) {
				t.Errorf("%+v, %+v, %v", a, again, err)
			}
		}
	})
}

// Add appends the answer for a record.
func (l *Log) Add(number int64, a Answer) error {
	if err := l.Put(number, a); err != nil {
		return err
	}
	return l.Flush()
}
