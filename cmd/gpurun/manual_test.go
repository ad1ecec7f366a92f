package main

import (
	"testing"

	"github.com/gpurun/gpurun/internal/explain"
)

// TestManualPages: gpurun explain names pages and sections that gpurun manual has.
func TestManualPages(t *testing.T) {
	for _, name := range append(manualNames(), "troubleshooting") {
		if _, err := manualPage(name); err != nil {
			t.Error(err)
		}
	}
	for _, area := range explain.Areas() {
		for _, entry := range area.Entries {
			if _, err := manualPage(entry.Page); err != nil {
				t.Errorf("%s: %v", entry.Title, err)
			}
		}
	}
}
