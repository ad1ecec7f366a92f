package orchestrator

import (
	"bytes"
	"context"
	"slices"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// sampleRecords is how many input records are looked at: they tell which members the rows of a
// table have, and their types.
const sampleRecords = 1000

// sampleInput looks at the first input records, unless the layout of the table is known.
func (p *prepared) sampleInput(ctx context.Context) error {
	if p.spec == nil || p.spec.Table == nil || p.layout.Get() != nil {
		return nil
	}
	s, options := newSampler(p.spec.Table), p.formatOptions()
	err := p.config.inputs.Sample(ctx, options, s.take)
	s.keep(p.config.Output.Keep)
	if err != nil {
		return err
	}
	if note := p.declaredColumns(options).addTo(p.spec.Table, p.config.Results.MayKeep); note != "" {
		p.plan.Notes = append(p.plan.Notes, note)
	}
	return nil
}

// sampler takes the first records of an input.
type sampler struct {
	to   *parquet.Sample
	left int
}

func newSampler(to *columns.TableSpec) *sampler {
	return &sampler{to: &to.Sample, left: sampleRecords}
}

// keep leaves out all but these members, unless there are none.
func (s *sampler) keep(names []string) {
	if len(names) > 0 {
		s.to.Columns = slices.DeleteFunc(s.to.Columns, func(c parquet.Column) bool { return !slices.Contains(names, c.Name) })
	}
}

// take looks at the lines of data, the last of which counts only if it is complete, and
// returns what it has not looked at, and whether it wants more.
func (s *sampler) take(data []byte, complete bool) (rest []byte, more bool) {
	for s.left > 0 && len(data) > 0 {
		line, rest, found := bytes.Cut(data, []byte("\n"))
		if !found && !complete {
			break
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			s.left--
			s.to.Add(line)
		}
		data = rest
	}
	return data, s.left > 0
}
