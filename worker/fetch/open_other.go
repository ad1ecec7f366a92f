//go:build !linux

package fetch

import "os"

func openBelow(*os.File, string) (openedFile, bool) { return openedFile{}, false }
