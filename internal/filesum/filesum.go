// Package filesum detects changes of code files by checksum.
package filesum

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"syscall"
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

// State identifies the file behind a name and its last modification: while the state
// stays the same, so does the sum. It is "" for a file that cannot be examined.
func State(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	state := fmt.Sprintf("%d bytes of %d", info.Size(), info.ModTime().UnixNano())
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		state += fmt.Sprintf(", file %d:%d, changed %d", stat.Dev, stat.Ino, ctime(stat).UnixNano())
	}
	return state
}

// ChangeTime returns when anything about a file last changed. Programs can set the modification
// time, but not this one.
func ChangeTime(info os.FileInfo) time.Time {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return ctime(stat).UTC()
	}
	return time.Time{}
}

// Cache sums programs and rereads only those whose state has changed. It is not safe for
// concurrent use.
type Cache struct {
	files map[string]cached
}

type cached struct{ state, sum string }

// Add records the sum of a program that had this state before it was read.
func (c *Cache) Add(path, state, sum string) {
	if c.files == nil {
		c.files = make(map[string]cached)
	}
	c.files[path] = cached{state, sum}
}

// Program returns the sum of a program; "" if it cannot be read.
func (c *Cache) Program(path string) string {
	state := State(path)
	if last, known := c.files[path]; known && state != "" && last.state == state {
		return last.sum
	}
	sum, err := Program(path)
	if err != nil {
		return ""
	}
	c.Add(path, state, sum)
	return sum
}
