package commit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// GroupsFile is the name in the job folder of the list of a table's row groups. A retry needs
// it to copy those that do not change.
const GroupsFile = "groups.json"

// FileGroups are the row groups of one file of a table.
type FileGroups struct {
	Groups []FileGroup `json:"groups"`
}

// FileGroup is a row group: its size in the file, its rows and its description.
type FileGroup struct {
	Bytes int64           `json:"bytes"`
	Rows  int64           `json:"rows"`
	Meta  json.RawMessage `json:"meta"`
}

// groupsFile is the content of the file.
type groupsFile struct {
	Files []FileGroups `json:"files"`
	Sum   chunk.CRC    `json:"crc32c"` // of Files
}

// GroupsOf returns the row groups among units. Only those of a table that begins a file have
// its head in front of them.
func GroupsOf(units []Unit) (g FileGroups) {
	for _, u := range units {
		if u.Meta == nil {
			continue
		}
		var described struct {
			Rows    int64 `json:"rows"`
			Columns []struct {
				Packed int64 `json:"packed"`
			} `json:"columns"`
		}
		_ = json.Unmarshal(u.Meta, &described) // the encoder wrote it
		group := FileGroup{Rows: described.Rows, Meta: u.Meta}
		for _, c := range described.Columns {
			group.Bytes += c.Packed
		}
		g.Groups = append(g.Groups, group)
	}
	return g
}

// WriteGroups durably writes a list of row groups.
func WriteGroups(path string, list []FileGroups) error {
	content, err := json.Marshal(list)
	if err != nil {
		return err
	}
	data, err := json.Marshal(groupsFile{list, chunk.Checksum(content)})
	if err != nil {
		return err
	}
	if err := files.WriteDurably(path, append(data, '\n'), files.PrivateMode); err != nil {
		return fault.New(fault.Storage, "write row groups: %w", err)
	}
	return nil
}

// ReadGroups reads what WriteGroups has written.
func ReadGroups(path string) ([]FileGroups, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var g groupsFile
	if err := json.Unmarshal(data, &g); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	content, err := json.Marshal(g.Files)
	if err == nil && chunk.Checksum(content) != g.Sum {
		err = errors.New("its checksum is wrong")
	}
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	return g.Files, nil
}

// writeGroups lists the row groups of a complete table.
func (o *Output) writeGroups() error {
	if o.units == nil || !o.units.table() || o.options.Journal == nil {
		return nil
	}
	var list []FileGroups
	for _, units := range o.fileUnits {
		list = append(list, GroupsOf(units))
	}
	return WriteGroups(filepath.Join(o.options.WorkDir, GroupsFile), list)
}

// noteFileUnit notes a unit of a file of a table.
func (o *Output) noteFileUnit(part int, u Unit) {
	for len(o.fileUnits) <= part {
		o.fileUnits = append(o.fileUnits, nil)
	}
	o.fileUnits[part] = append(o.fileUnits[part], u)
}

// noteFileUnits notes the units of the durable table. A file without any is noted too.
func (o *Output) noteFileUnits(state State) {
	o.fileUnits = make([][]Unit, o.landed.part+1)
	state.eachUnit(o.options, o.noteFileUnit)
}
