package server

import "net/http"

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

// parameter is a parameter of the query. All are optional.
type parameter struct {
	name, about string
	kind        string // "integer" or "string"
}
