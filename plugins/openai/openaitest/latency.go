package openaitest

import (
	"math"
	"time"
)

// Lognormal returns a latency that is a fixed function of a request's number, distributed as
// that of a model server: the median is 200 ms, one in 50 takes more than a second, and the
// longest 5 s. scale shortens all of them.
func Lognormal(scale float64) func(number int) time.Duration {
	return func(number int) time.Duration {
		// splitmix64 spreads consecutive numbers evenly.
		x := uint64(number)*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		u := (float64((x^x>>31)>>11) + 0.5) / (1 << 53)
		seconds := min(5, 0.2*math.Exp(0.8*math.Sqrt2*math.Erfinv(2*u-1)))
		return time.Duration(seconds * scale * float64(time.Second))
	}
}
