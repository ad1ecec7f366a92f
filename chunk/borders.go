package chunk

// Batches, and windows of them, end at fixed places of the source's chunk: what a record is
// computed with depends on the plan alone, not on which worker got which part of the chunk, and
// when. A model's results depend on it, if only in the last digits.

// Every returns the distance of these places: the size of a batch, or of windows of up
// to most batches, which divide the source's chunk evenly.
func (c Chunk) Every(size, most int) int64 {
	batches := CeilDiv(c.Preceding+c.Records+c.Following, int64(size))
	windows := max(1, CeilDiv(batches, int64(most)))
	return max(1, CeilDiv(batches, windows)) * int64(size)
}

// Border returns how many records lie between the start of the chunk and the first border after
// its first n records.
func (c Chunk) Border(n, every int64) int64 {
	return n + every - (c.Preceding+n)%every
}
