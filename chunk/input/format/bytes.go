package format

import (
	"slices"
	"sync"
)

// Bytes is where the values of columns of bytes go, such as images.
type Bytes struct {
	// Names are these columns. Lines do not have them.
	Names []string
	// Beside are those whose values travel beside the lines, in this order.
	Beside []string
	// Inline are those that lines have nevertheless, as base64.
	Inline []string
}

// Values returns how many values travel beside each line.
func (b *Bytes) Values() int {
	if b == nil {
		return 0
	}
	return len(b.Beside)
}

// Place returns where the values of a column go: the number among those beside the lines, -1 for
// none, and whether lines have them.
func (b *Bytes) Place(name string) (beside int, inline bool) {
	if b == nil || !slices.Contains(b.Names, name) {
		return -1, true
	}
	return slices.Index(b.Beside, name), slices.Contains(b.Inline, name)
}

// Blob is a value that travels beside the line of its record: bytes, or a struct of bytes and the path
// of a file. If the bytes are null, the file has them.
type Blob struct {
	Kind BlobKind
	Data []byte
	Path []byte
}

// BlobKind is what a blob has.
type BlobKind byte

// A blob has any of these. Without any, it is null.
const (
	NullBlob   BlobKind = 0
	BytesBlob  BlobKind = 1
	PathBlob   BlobKind = 2
	StructBlob BlobKind = 4 // it is a struct, whose members may be null
)

// HasBytes and HasPath report what is not null.
func (k BlobKind) HasBytes() bool { return k&BytesBlob != 0 }
func (k BlobKind) HasPath() bool  { return k&PathBlob != 0 }

// BlobQueue holds the blobs of lines until those are taken. A decoder adds them before it returns
// the lines. It is safe for concurrent use.
type BlobQueue struct {
	mu    sync.Mutex
	lines [][]Blob
}

// Add adds the blobs of lines.
func (q *BlobQueue) Add(lines ...[]Blob) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines = append(q.lines, lines...)
}

// Next returns the blobs of the next line; see Lines.Blobs.
func (q *BlobQueue) Next() (blobs []Blob) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) == 0 {
		return nil
	}
	blobs, q.lines[0] = q.lines[0], nil
	q.lines = q.lines[1:]
	return blobs
}
