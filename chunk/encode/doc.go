// Package encode has the formats of an output file. A Format is found by its name
// (jsonl.zst) or by the ending of a file name. Its Codec encodes units: runs of whole lines,
// each of which becomes a frame that can be decoded alone, so that units are encoded
// concurrently, and readers can seek.
//
// The bytes of a unit depend on its lines and nothing else. That is what makes an output
// identical after a kill, on any number of workers and cores.
package encode
