// Package docs embeds the manual for gpurun manual, so that every
// installation has it.
package docs

import "embed"

// Pages are the pages of the manual, in Markdown.
//
//go:embed *.md reference/*.md
var Pages embed.FS
