package chunk

import (
	"testing"

	"github.com/gpurun/gpurun/chunk/chunktest"
)

// TestBorders: however a chunk is split, its parts have the borders of the whole.
func TestBorders(t *testing.T) {
	r := chunktest.Seeded(t)
	for range 2000 {
		size, most := 1+r.IntN(9), 1+r.IntN(16)
		whole := Chunk{First: r.Int64N(1000), Records: 1 + r.Int64N(600)}
		every := whole.Every(size, most)
		if every%int64(size) != 0 || every > int64(size*most) {
			t.Fatalf("%d records in batches of %d: windows of %d", whole.Records, size, every)
		}
		borders := make(map[int64]bool)
		for at := int64(0); at < whole.Records; {
			at = whole.Border(at, every)
			borders[whole.First+at] = true
		}
		if n := int64(len(borders)); n != CeilDiv(whole.Records, every) {
			t.Fatalf("%d borders at a distance of %d in %d records", n, every, whole.Records)
		}
		part := whole
		for part.Records > 1 && r.IntN(4) > 0 {
			at := part.First + 1 + r.Int64N(part.Records-1)
			if part = part.Tail(Place{}, at); r.IntN(2) == 0 {
				part = part.Head(Place{}, part.First+1+r.Int64N(part.Records))
			}
		}
		if part.Every(size, most) != every {
			t.Fatalf("%+v, a part of %+v, has borders at a distance of %d instead of %d", part, whole, part.Every(size, most), every)
		}
		for n := range part.Records {
			at := part.Border(n, every)
			if at <= n || !borders[part.First+at] {
				t.Fatalf("%+v has a border after %d records, which %+v has not", part, at, whole)
			}
		}
	}
}
