// Package jsonline works on one line of JSON: it validates the line, finds its members,
// and splices in new ones without re-encoding any byte.
//
// A record passes through gpurun as the bytes that were read. So this package does not
// decode a line into values: Scan finds offsets, and Splice and Keep copy the bytes
// between them:
//
//	w := jsonline.Want("id", "score")
//
//	{"id":7,"text":"a \"b\"" }
//	 ^    ^^                 ^
//	 |    |ValueEnd          Close
//	 |    ValueStart
//	 KeyStart                        Spans[0] = {1, 6, 7}, Spans[1] = {} (absent)
//
//	Splice(…, {"id", 8}, {"score", 0.5})  ->  {"id":8,"text":"a \"b\"" ,"score":0.5}
//	Keep(…)                               ->  {"id":7}
//
// A line is valid if both encoding/json.Valid and unicode/utf8.Valid accept it. Scan
// validates the line and finds the offsets in a single pass that does not allocate.
//
// The package does not read files, split lines or know a schema. The Append functions
// encode the few values that gpurun itself adds to a record.
package jsonline
