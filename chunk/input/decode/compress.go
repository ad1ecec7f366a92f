package decode

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gpurun/gpurun/chunk/input/format"
)

// compression is a way to compress any content. Concatenated compressed files are one
// file.
type compression struct {
	name  string
	magic string
	open  func(r io.Reader, threads int) (io.ReadCloser, error)
}

// compressions are those that gpurun undoes.
var compressions = []*compression{
	{"gzip", gzipMagic, openGzip},
	{"zstd", "\x28\xb5\x2f\xfd", openZstd},
	{"zstd", skippable, openZstd},
}

// gzipMagic begins a member of a gzip file.
const gzipMagic = "\x1f\x8b\x08"

// skippable begins a frame of zstd without content, as some writers put first; its last
// four bits are anything.
const skippable = "\x50\x2a\x4d\x18"

// compressionOf returns the compression of a file that begins with head, nil for none.
func compressionOf(head []byte) *compression {
	for _, c := range compressions {
		if bytes.HasPrefix(head, []byte(c.magic)) {
			return c
		}
		if c.magic == skippable && len(head) >= 4 && head[0]&0xf0 == skippable[0] && string(head[1:4]) == skippable[1:] {
			return c
		}
	}
	return nil
}

// head returns the first bytes of the content, as far as the first bytes of the file hold
// them, and whether that is all. Errors come when the file is read.
func (c *compression) head(compressed []byte) (head []byte, whole bool) {
	r, err := c.open(bytes.NewReader(compressed), 1)
	if err != nil {
		return nil, false
	}
	defer r.Close()
	head = make([]byte, format.SniffBytes)
	n, err := io.ReadFull(r, head)
	return head[:n], errors.Is(err, io.EOF)
}

// readAhead is how much of a compressed file is read at once.
const readAhead = 256 << 10

// readers holds buffers: there may be thousands of small files.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readAhead) }}

func openGzip(r io.Reader, _ int) (io.ReadCloser, error) {
	in := readers.Get().(*bufio.Reader)
	in.Reset(r)
	return &gunzip{in: in}, nil
}

// gunzip opens the first member on the first Read, so that errors have one way.
type gunzip struct {
	in *bufio.Reader
	z  *gzip.Reader
}

func (g *gunzip) Read(p []byte) (n int, err error) {
	if g.in == nil {
		return 0, os.ErrClosed
	}
	if g.z == nil {
		if g.z, err = gzip.NewReader(g.in); err != nil {
			g.z = nil
			return 0, gzipError(err)
		}
		g.z.Multistream(false)
	}
	for n == 0 && err == nil && len(p) > 0 {
		if n, err = g.z.Read(p); errors.Is(err, io.EOF) {
			err = g.nextMember()
		}
	}
	return n, gzipError(err)
}

// nextMember begins the next member, or returns io.EOF after the last one. Zeros may follow
// that, as in files that were padded to whole blocks; the gzip program ignores them too.
func (g *gunzip) nextMember() error {
	for padded := false; ; padded = true {
		next, err := g.in.Peek(len(gzipMagic))
		switch {
		case len(next) == 0:
			return err
		case next[0] == 0:
			_, _ = g.in.Discard(1)
			continue
		case padded || string(next) != gzipMagic:
			return gzip.ErrHeader
		}
		if err := g.z.Reset(g.in); err != nil {
			return err
		}
		g.z.Multistream(false)
		return nil
	}
}

// gzipError says what is wrong with the file.
func gzipError(err error) error {
	switch {
	case err == nil || err == io.EOF:
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("truncated gzip file")
	case errors.Is(err, gzip.ErrChecksum):
		return errors.New("corrupt gzip file: checksum mismatch; everything before it may be altered")
	case errors.Is(err, gzip.ErrHeader):
		return errors.New("corrupt gzip file: no gzip header where a member should begin")
	case errors.As(err, new(flate.CorruptInputError)):
		return fmt.Errorf("corrupt gzip file: %w; everything before it may be altered", err)
	}
	return fmt.Errorf("corrupt gzip file: %w", err)
}

// Close must not be called during a Read.
func (g *gunzip) Close() error {
	if g.in != nil {
		g.in.Reset(nil)
		readers.Put(g.in)
		g.in, g.z = nil, nil
	}
	return nil
}

// maxWindow is the largest window of a zstd frame, and what the zstd program itself accepts
// without being asked for more: it is in memory while the frame is decoded.
const maxWindow = 128 << 20

func openZstd(r io.Reader, threads int) (io.ReadCloser, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(max(1, min(threads, 4))),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, zstdError(err)
	}
	return &unzstd{z}, nil
}

type unzstd struct{ z *zstd.Decoder }

func (u *unzstd) Read(p []byte) (int, error) {
	n, err := u.z.Read(p)
	return n, zstdError(err)
}

func (u *unzstd) Close() error { u.z.Close(); return nil }

// zstdError says what is wrong with the file.
func zstdError(err error) error {
	switch {
	case err == nil || err == io.EOF:
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("truncated zstd file")
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return fmt.Errorf("its zstd window is larger than %d MiB; compress it again with a smaller one", maxWindow>>20)
	case errors.Is(err, zstd.ErrCRCMismatch):
		return errors.New("corrupt zstd file: checksum mismatch; everything before it may be altered")
	case errors.Is(err, zstd.ErrMagicMismatch) || errors.As(err, new(*os.PathError)): // between frames, or of the disk
		return fmt.Errorf("corrupt zstd file: %w", err)
	}
	return fmt.Errorf("corrupt zstd file: %w; everything before it may be altered", err)
}
