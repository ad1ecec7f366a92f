// Package filesum tells one state of a file of code from another.
package filesum

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"
)

// mostBytes is how much of a program is read: enough for any; of a larger one, size and
// time must do.
const mostBytes = 64 << 20

// Program is the sum of a program or script: its SHA-256, in hexadecimal digits, unless
// it is outsized.
func Program(path string) (string, error) { return sum(path, mostBytes) }

// Whole is the SHA-256 of a file of any size.
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

// Cache sums programs, and reads none again that the file system says is the same. It is
// for one goroutine.
type Cache struct {
	files map[string]cached
}

type cached struct {
	info os.FileInfo
	sum  string
}

// Program is the sum of a program; "" if it cannot be read.
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
