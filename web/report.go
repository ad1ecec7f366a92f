package web

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"
)

// WriteReport writes a page with a job's data in it: one file that needs no other. data
// has the members that the page reads: job, view and history.
func WriteReport(w io.Writer, title string, data any) error {
	encoded, err := json.Marshal(data) // escapes <, so that no text ends the element
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	style, script := string(read("style.css")), string(read("report.js"))
	policy := fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'", sum([]byte(style)), sum([]byte(script)))
	_, err = strings.NewReplacer(
		"{{.Policy}}", policy, "{{.Title}}", html.EscapeString(title),
		"{{.Style}}", style, "{{.Data}}", string(encoded), "{{.Script}}", script,
	).WriteString(w, string(read("report.html")))
	return err
}
