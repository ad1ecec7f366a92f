//go:build !linux

package commit

import "os"

func startWriteback(*os.File, int64, int64) {}
