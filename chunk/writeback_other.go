//go:build !linux

package chunk

import "os"

func startWriteback(*os.File, int64, int64) {}
