package parquet

import (
	"encoding/binary"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
)

// perSecond returns how many units a second has, and how many digits its fraction takes.
func perSecond(unit int64) (units int64, digits int) {
	switch unit {
	case spec.UnitMillis:
		return 1e3, 3
	case spec.UnitMicros:
		return 1e6, 6
	}
	return 1e9, 9
}

// split returns whole seconds and the rest, which is not negative.
func split(value, units int64) (seconds, rest int64) {
	seconds, rest = value/units, value%units
	if rest < 0 {
		seconds, rest = seconds-1, rest+units
	}
	return seconds, rest
}

// appendTimestamp writes a time as RFC 3339 does; without a zone if it is not adjusted to
// UTC. Years outside 0 to 9999 get a sign, as in ISO 8601.
func appendTimestamp(dst []byte, value, unit int64, utc bool) []byte {
	units, digits := perSecond(unit)
	seconds, rest := split(value, units)
	return appendMoment(dst, seconds, rest, digits, utc)
}

func appendMoment(dst []byte, seconds, rest int64, digits int, utc bool) []byte {
	t := time.Unix(seconds, 0).UTC()
	dst = append(dst, '"')
	dst = appendDay(dst, t)
	dst = append(dst, 'T')
	dst = appendClock(dst, t.Hour(), t.Minute(), t.Second(), rest, digits)
	if utc {
		dst = append(dst, 'Z')
	}
	return append(dst, '"')
}

// appendInt96 writes a timestamp of old versions of Spark, Hive and Impala: nanoseconds of
// a day, and the number of the day. It has no zone, as for other readers.
func appendInt96(dst, v []byte) []byte {
	const unixEpoch = 2440588 // as a Julian day
	seconds, rest := split(int64(binary.LittleEndian.Uint64(v)), 1e9)
	day := int64(int32(binary.LittleEndian.Uint32(v[8:])))
	return appendMoment(dst, (day-unixEpoch)*86400+seconds, rest, 9, false)
}

// appendDate writes a number of days since 1970.
func appendDate(dst []byte, days int64) []byte {
	dst = append(dst, '"')
	dst = appendDay(dst, time.Unix(days*86400, 0).UTC())
	return append(dst, '"')
}

// appendTime writes a time of day. One outside the day is written as the number it is.
func appendTime(dst []byte, value, unit int64) []byte {
	units, digits := perSecond(unit)
	seconds, rest := split(value, units)
	if seconds < 0 || seconds > 86400 {
		return strconv.AppendInt(dst, value, 10)
	}
	dst = append(dst, '"')
	dst = appendClock(dst, int(seconds/3600), int(seconds/60%60), int(seconds%60), rest, digits)
	return append(dst, '"')
}

func appendDay(dst []byte, t time.Time) []byte {
	year, month, day := t.Date()
	switch {
	case year < 0:
		dst = append(dst, '-')
		year = -year
	case year > 9999:
		dst = append(dst, '+')
	}
	dst = appendPadded(dst, int64(year), 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, int64(month), 2)
	dst = append(dst, '-')
	return appendPadded(dst, int64(day), 2)
}

// appendClock writes hours, minutes, seconds and, unless it is zero, their fraction.
func appendClock(dst []byte, hour, minute, second int, rest int64, digits int) []byte {
	dst = appendPadded(dst, int64(hour), 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, int64(minute), 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, int64(second), 2)
	if rest != 0 {
		dst = append(dst, '.')
		dst = appendPadded(dst, rest, digits)
	}
	return dst
}

// appendPadded writes n with at least the given number of digits.
func appendPadded(dst []byte, n int64, digits int) []byte {
	for limit := pow10(digits - 1); n < limit && limit > 1; limit /= 10 {
		dst = append(dst, '0')
	}
	return strconv.AppendInt(dst, n, 10)
}

func pow10(n int) int64 {
	p := int64(1)
	for range n {
		p *= 10
	}
	return p
}
