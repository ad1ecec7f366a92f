package server

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"syscall"

	"github.com/gpurun/gpurun/internal/fault"
)

// minToken is the least length of a token that a user provides.
const minToken = 16

// NewToken returns a token that cannot be guessed.
func NewToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ReadToken reads the token in a file, or creates the file with a new one. Only its user
// may be able to read it.
func ReadToken(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err == nil {
		token := NewToken()
		_, err = file.WriteString(token + "\n")
		return token, errors.Join(err, file.Close())
	}
	if !errors.Is(err, os.ErrExist) {
		return "", fault.TokenFile.New("create the token file: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fault.TokenFile.New("read the token file: %w", err)
	}
	if info.Mode().Perm()&forbidden(info) != 0 {
		return "", fault.TokenFile.New("other users can read the token file %s (mode %o): chmod 600 %s", path, info.Mode().Perm(), path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fault.TokenFile.New("read the token file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n#") {
		return "", fault.TokenFile.New("the token file %s must hold one word of at least %d characters; remove the file to get a new token", path, minToken)
	}
	return token, nil
}

// forbidden returns the permissions that a token file must not grant. A file of root's is
// provided by the system, and may be readable by the group that was given to this process:
// Kubernetes mounts secrets that way.
func forbidden(info os.FileInfo) os.FileMode {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == 0 && os.Getuid() != 0 {
		return 0o037
	}
	return 0o077
}
