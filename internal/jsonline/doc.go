// Package jsonline knows one line of JSON: whether it is valid, where its
// members are, and how new members are put in, without re-encoding any byte.
//
// A record passes through gpurun as the bytes it came in. So nothing here
// decodes a line into values; Scan finds offsets, and Splice and Keep copy
// the bytes between them:
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
// A line is valid when encoding/json.Valid and unicode/utf8.Valid both say so;
// that, and the offsets, come out of a single pass that does not allocate.
//
// The package reads no files, splits no lines and holds no schema. The Append
// functions encode the few values that gpurun itself adds to a record.
package jsonline
