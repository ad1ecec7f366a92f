// Package filesum detects changes of code files by checksum.
package filesum

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"
)

// mostBytes is the size up to which programs are read, more than any usual one has. For a
// larger file, size and modification time must suffice.
const mostBytes = 64 << 20

// Program returns the sum of a program or script: its SHA-256 in hexadecimal, or its size
// and modification time if it is too large.
func Program(path string) (string, error) { return sum(path, mostBytes) }

// Whole returns the SHA-256 of a file of any size.
func Whole(path string) (string, error) { return sum(path, 0) }

func sum(path string, most int64) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if most > 0 && info.Size() > most {
		return fmt.Sprintf("%d bytes of %s", info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano)), nil
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// Cache sums programs and rereads only those that have changed according to the file
// system. It is not safe for concurrent use.
type Cache struct {
	files map[string]cached
}

type cached struct {
	info os.FileInfo
	sum  string
}

// Program returns the sum of a program; "" if it cannot be read.
func (c *Cache) Program(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	last, known := c.files[path]
	if known && os.SameFile(last.info, info) && last.info.Size() == info.Size() && last.info.ModTime().Equal(info.ModTime()) {
		return last.sum
	}
	sum, err := Program(path)
	if err != nil {
		return ""
	}
	if c.files == nil {
		c.files = make(map[string]cached)
	}
	c.files[path] = cached{info, sum}
	return sum
}
