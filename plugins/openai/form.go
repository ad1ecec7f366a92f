package openai

import (
	"bytes"

	"github.com/gpurun/gpurun/plugins"
)

// form is the JSON of a request's body, cut where the texts of a record belong. It is made
// once: most requests of a job differ only there.
type form struct {
	parts  []string   // what precedes each text
	texts  []template // of strings
	images []string   // members; the last text goes with them
	rest   string     // what follows the last text and the images
}

// makeForm returns the form for the templates, or nil if there are none.
func (s *settings) makeForm() *form {
	if s.Prompt == "" {
		return nil
	}
	fixed := map[string]any{"model": s.Model}
	for name, value := range s.Body {
		fixed[name] = value
	}
	head := string(bytes.TrimSuffix(encode(fixed), []byte("}")))
	switch s.Endpoint {
	case Completions:
		return &form{parts: []string{head + `,"prompt":"`}, texts: []template{s.prompt}, rest: `}`}
	case Embeddings:
		return &form{parts: []string{head + `,"input":"`}, texts: []template{s.prompt}, rest: `}`}
	}
	head += `,"messages":[`
	user := `{"role":"user","content":"`
	if len(s.Images) > 0 {
		user = `{"role":"user","content":[{"type":"text","text":"`
	}
	f := &form{parts: []string{head + user}, texts: []template{s.prompt}, images: s.Images, rest: `}]}`}
	if s.System != "" {
		f.parts = []string{head + `{"role":"system","content":"`, `"},` + user}
		f.texts = []template{s.system, s.prompt}
	}
	return f
}

// fill returns the body for a record.
func (f *form) fill(record plugins.Record) (b body, err error) {
	b.text = make([]byte, 0, 512)
	for i, text := range f.texts {
		if b.text, err = text.appendJSON(append(b.text, f.parts[i]...), record.Member); err != nil {
			return body{}, err
		}
	}
	b.text = append(b.text, '"')
	if len(f.images) > 0 {
		b.text = append(b.text, '}')
		if err = b.addImages(record, f.images); err != nil {
			return body{}, err
		}
		b.text = append(b.text, ']')
	}
	b.text = append(b.text, f.rest...)
	return b, nil
}
