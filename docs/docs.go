// Package docs embeds the manual for gpurun manual, so that it is where the program is.
package docs

import "embed"

// Pages are the pages of the manual, in Markdown.
//
//go:embed *.md reference/*.md
var Pages embed.FS
