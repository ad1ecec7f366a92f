package plugins

import (
	"bytes"
	"fmt"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// ResultLines returns the lines that record i became, without line endings: the record
// itself if it is unchanged, with the values of columns spliced in if there are any. No
// lines means that it was dropped. The text of an error is the message for a failed
// record. ResultLines is for callers that pass a kernel's results to another kernel.
func ResultLines(record []byte, results *Results, i int) ([][]byte, error) {
	switch result := results.At(i); result.Verdict {
	case Unchanged:
		return [][]byte{record}, nil
	case Lines:
		for _, line := range result.Lines {
			if !jsonline.Valid(line) {
				return nil, fmt.Errorf("kernel returned invalid JSON")
			}
			if err := rejects(line, record); err != nil {
				return nil, err
			}
		}
		return result.Lines, nil
	case Columns:
		line, err := splice(record, results.ColumnList(), i)
		if err == nil {
			err = rejects(line, record)
		}
		return [][]byte{line}, err
	case Failed:
		return nil, fmt.Errorf("%s", result.Message)
	}
	return nil, nil
}

// rejects returns the error with which a line rejects its record. An error that the record
// already had is not the kernel's.
func rejects(line, record []byte) error {
	if !bytes.Contains(line, markText) {
		return nil
	}
	if value := Reported(line); value != nil && !bytes.Equal(value, Reported(record)) {
		return fmt.Errorf("%s", ReportedMessage(value))
	}
	return nil
}

var markText = []byte(`"` + ErrorMember + `"`)

// splice returns a record with the values of columns spliced in.
func splice(record []byte, columns []Column, i int) ([]byte, error) {
	members := make([]jsonline.Member, len(columns))
	for k, c := range columns {
		value := c.AppendValue(nil, i)
		if !c.Trusted() && !jsonline.Valid(value) {
			return nil, fmt.Errorf("kernel returned invalid JSON in column %q", c.Name)
		}
		members[k] = jsonline.Member{Name: c.Name, Value: value}
	}
	line, ok := jsonline.Set(record, members...)
	if !ok {
		return nil, fmt.Errorf("the record is not a JSON object: the kernel's column %q cannot be added to it", columns[0].Name)
	}
	return line, nil
}
