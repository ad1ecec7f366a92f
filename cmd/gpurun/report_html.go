package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/web"
)

// writeHTML writes the report of a job as one HTML file; an error leaves an earlier report as
// it was.
func writeHTML(path string, status orchestrator.Status) error {
	if err := checkHTML(path); err != nil {
		return err
	}
	data := struct {
		Job map[string]string `json:"job"`
		view.Recorded
	}{map[string]string{
		"kernel": status.Report.Kernel, "input": status.Report.Input, "output": status.Report.Output,
	}, view.Record(status)}
	var page bytes.Buffer
	err := web.WriteReport(&page, filepath.Base(status.Report.Output)+" – gpurun", data)
	if err == nil {
		err = files.WriteDurably(path, page.Bytes(), files.PublicMode)
	}
	if err != nil {
		return fault.SideFile.New("--html: %w", err)
	}
	return nil
}

// checkHTML rejects a path whose file is not HTML: it may be the output, or anything else
// that the user did not mean.
func checkHTML(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.SideFile.New("--html: %w", err)
	}
	defer file.Close()
	head := make([]byte, 15)
	_, _ = io.ReadFull(file, head)
	if !strings.EqualFold(string(head), "<!doctype html>") {
		return fault.SideFile.New("--html %s exists and is not an HTML file, so it is not overwritten; choose another file", path)
	}
	return nil
}
