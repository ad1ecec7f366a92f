package server

import (
	"net/http"
	"strconv"

	"github.com/gpurun/gpurun/internal/fault"
)

// route is one operation of the API: what it does, and what describes it.
type route struct {
	pattern string // "GET /api/jobs/{id}"
	summary string
	query   []parameter
	// body and answer are values whose types describe the JSON; nil for none. An answer of
	// type string is its media type.
	body, answer any
	handler      http.HandlerFunc
}

// parameter is a parameter of the query. All are optional. A number lies between least and
// most; a parameter without most, or with a pattern that it matches, is described as a string.
type parameter struct {
	name, about string
	pattern     string
	least, most int64
}

func (p parameter) schema() object {
	switch {
	case p.pattern != "":
		return object{"type": "string", "pattern": p.pattern}
	case p.most == 0:
		return object{"type": "string"}
	}
	return object{"type": "integer", "minimum": p.least, "maximum": p.most}
}

// number reads the parameter, which is otherwise unless given.
func (p parameter) number(r *http.Request, otherwise int64) (int64, error) {
	query := r.URL.Query()
	if !query.Has(p.name) {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(query.Get(p.name), 10, 64)
	if err != nil || n < p.least || n > p.most {
		return 0, fault.BadRequest.New("%s must be a number from %d to %d", p.name, p.least, p.most)
	}
	return n, nil
}
