package openai

import (
	"bytes"
	"strconv"

	"github.com/gpurun/gpurun/plugins"
)

// form is the JSON of a request's body, cut where the texts of a record belong. It is made
// once: most requests of a job differ only there.
type form struct {
	parts  [][]byte   // what precedes each text, and the rest
	texts  []template // one less than parts
	images []string   // members; the last text goes with them
}

// makeForm returns the form for the templates, or nil if there are none.
func (s *settings) makeForm() *form {
	if s.Prompt == "" {
		return nil
	}
	for n := 0; ; n++ {
		system, prompt := "system "+strconv.Itoa(n), "prompt "+strconv.Itoa(n) // stand for the texts
		messages, standing, texts := []message{{"user", prompt}}, []string{prompt}, []template{s.prompt}
		if s.System != "" {
			messages = []message{{"system", system}, {"user", prompt}}
			standing, texts = []string{system, prompt}, []template{s.system, s.prompt}
		}
		if parts := cutAt(s.bodyOf(messages, prompt), standing); parts != nil {
			return &form{parts, texts, s.Images}
		}
	}
}

// cutAt cuts a body at these strings. It returns nil if one of them occurs elsewhere too.
func cutAt(body []byte, strings []string) (parts [][]byte) {
	for _, text := range strings {
		quoted := encode(text)
		if bytes.Count(body, quoted) != 1 {
			return nil
		}
		before, after, _ := bytes.Cut(body, quoted)
		parts, body = append(parts, before), after
	}
	return append(parts, body)
}

// fill returns the body for a record.
func (f *form) fill(record plugins.Record) (b body, err error) {
	b.text = make([]byte, 0, 512)
	for i, text := range f.texts {
		b.text = append(b.text, f.parts[i]...)
		withImages := i == len(f.texts)-1 && len(f.images) > 0
		if withImages {
			b.text = append(b.text, `[{"type":"text","text":`...)
		}
		b.text = append(b.text, '"')
		if b.text, err = text.appendJSON(b.text, record.Member); err != nil {
			return body{}, err
		}
		b.text = append(b.text, '"')
		if withImages {
			b.text = append(b.text, '}')
			if err = b.addImages(record, f.images); err != nil {
				return body{}, err
			}
			b.text = append(b.text, ']')
		}
	}
	b.text = append(b.text, f.parts[len(f.texts)]...)
	return b, nil
}
