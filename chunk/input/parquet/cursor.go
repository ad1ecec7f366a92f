package parquet

import (
	"errors"
	"io"

	"github.com/parquet-go/parquet-go"
)

// valuesAtOnce is how many values of a column are decoded at a time.
const valuesAtOnce = 512

// cursor steps through the values of one column of a row group. At the end of the column,
// and after an error, its value is null with levels 0, which ends every list.
type cursor struct {
	pages  parquet.Pages
	page   parquet.Page
	reader parquet.ValueReader
	buffer []parquet.Value
	at     int
	ended  bool
	err    error
}

func newCursor(chunk parquet.ColumnChunk) *cursor {
	c := &cursor{pages: chunk.Pages()}
	c.next()
	return c
}

// value returns the current value. It is valid until next.
func (c *cursor) value() parquet.Value { return c.buffer[c.at] }

func (c *cursor) def() int { return c.buffer[c.at].DefinitionLevel() }
func (c *cursor) rep() int { return c.buffer[c.at].RepetitionLevel() }

// next steps to the next value.
func (c *cursor) next() {
	if c.at++; c.at >= len(c.buffer) {
		c.load()
	}
}

// load decodes more values. The bytes of the last ones are no longer needed.
func (c *cursor) load() {
	if c.buffer == nil {
		c.buffer = make([]parquet.Value, valuesAtOnce)
	}
	c.at = 0
	for !c.ended {
		if c.reader == nil && !c.open() {
			break
		}
		n, err := c.reader.ReadValues(c.buffer[:cap(c.buffer)])
		if err != nil && !errors.Is(err, io.EOF) {
			c.end(err)
			break
		}
		if err != nil || n == 0 {
			c.reader = nil
		}
		if n > 0 {
			c.buffer = c.buffer[:n]
			return
		}
	}
	c.buffer = c.buffer[:1]
	c.buffer[0] = parquet.Value{}
}

// open opens the next page. Values of the last one may still be in the buffer if it ended
// together with them; they have all been used.
func (c *cursor) open() bool {
	c.release()
	page, err := c.pages.ReadPage()
	if err != nil {
		c.end(err)
		return false
	}
	c.page, c.reader = page, page.Values()
	return true
}

func (c *cursor) end(err error) {
	c.ended = true
	if !errors.Is(err, io.EOF) {
		c.err = err
	}
}

func (c *cursor) release() {
	if c.page != nil {
		parquet.Release(c.page)
		c.page = nil
	}
}

func (c *cursor) close() {
	c.release()
	c.pages.Close()
}
