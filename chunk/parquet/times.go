package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Unit is the unit of a time, with the number that Parquet and Arrow give it.
type Unit int

// The units. Parquet has no seconds.
const (
	Seconds Unit = iota
	Millis
	Micros
	Nanos
)

// units are the names of units in types.
var units = map[string]Unit{"ms": Millis, "us": Micros, "ns": Nanos}

// digits returns how many digits the fraction of a second has.
func (u Unit) digits() int { return 3 * int(u) }

// perSecond returns how many units a second has.
func (u Unit) perSecond() int64 { return [...]int64{1, 1e3, 1e6, 1e9}[u] }

var (
	errZone     = errors.New("it has a time zone: the type for that is timestamptz")
	errNoZone   = errors.New("it has no time zone: the type for that is timestamp")
	errFraction = errors.New("its fraction has more digits than the unit of the column")
	errRange    = errors.New("the column's unit cannot represent it")
	errTime     = errors.New("a time is written as 23:59:59 or 23:59:59.123456")
	errStamp    = errors.New("it must be written as 2026-01-31T23:59:59 or 2026-01-31T23:59:59.123456")
)

// Layouts of the time package.
const (
	dateLayout  = "2006-01-02"
	clockLayout = "15:04:05"
	stampLayout = dateLayout + "T" + clockLayout
	zoneLayout  = "Z07:00"
)

// parseMoment reads a text in one of these layouts. Years of more than four digits have a sign.
func parseMoment(layout string, text []byte) (at time.Time, ok bool) {
	years := 0
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		end := 1 + bytes.IndexByte(text[1:], '-')
		year, err := strconv.Atoi(string(text[:end]))
		if err != nil || end < len("+2006") || end > len("+")+maxYearDigits {
			return at, false
		}
		same := 2000 + year%400 // the calendar repeats itself
		years, text = year-same, append(strconv.AppendInt(nil, int64(same), 10), text[end:]...)
	}
	// The time package would take a comma for a point, and an hour of one digit.
	if hour := strings.Index(layout, "15"); bytes.IndexByte(text, ',') >= 0 || hour >= 0 && (len(text) < hour+3 || text[hour+2] != ':') {
		return at, false
	}
	at, err := time.Parse(layout, string(text))
	return at.AddDate(years, 0, 0), err == nil
}

// maxYearDigits is the number of digits of the last year that 64 bits of milliseconds can
// represent.
const maxYearDigits = 9

// parseDate reads 2026-01-31 as days since 1970.
func parseDate(text []byte) (days int64, ok bool) {
	at, ok := parseMoment(dateLayout, text)
	return at.Unix() / daySeconds, ok
}

// inUnits returns the fraction of a second of a moment, which is the end of a text.
func (u Unit) inUnits(at time.Time, text []byte) (fraction int64, err error) {
	if _, digits, found := bytes.Cut(text, []byte(".")); found {
		if end := bytes.IndexAny(digits, "Z+-"); end >= 0 {
			digits = digits[:end]
		}
		if len(bytes.TrimRight(digits, "0")) > u.digits() {
			return 0, errFraction
		}
	}
	return int64(at.Nanosecond()) / (1e9 / u.perSecond()), nil
}

const daySeconds = 86400

// parseTime reads a time of day. As in ISO 8601, the end of a day is 24:00:00.
func (of traits) parseTime(text []byte) (uint64, error) {
	if string(text) == "24:00:00" {
		return uint64(daySeconds * of.unit.perSecond()), nil
	}
	at, ok := parseMoment(clockLayout, text)
	if !ok {
		return 0, errTime
	}
	fraction, err := of.unit.inUnits(at, text)
	return uint64(int64(3600*at.Hour()+60*at.Minute()+at.Second())*of.unit.perSecond() + fraction), err
}

// parseTimestamp reads a date and a time, with a zone if the type has one. Between them is a T,
// or a space, as some programs write.
func (of traits) parseTimestamp(text []byte) (uint64, error) {
	own, other, misfit := stampLayout, stampLayout+zoneLayout, errZone
	if of.kind == TimestampUTC {
		own, other, misfit = other, own, errNoZone
	}
	text = bytes.Replace(text, []byte(" "), []byte("T"), 1)
	at, ok := parseMoment(own, text)
	if !ok {
		if _, ok := parseMoment(other, text); ok {
			return 0, misfit
		}
		return 0, errStamp
	}
	fraction, err := of.unit.inUnits(at, text)
	seconds, units := at.Unix(), of.unit.perSecond()
	value := seconds*units + fraction
	// In the first representable second the product underflows, but the sum with the fraction fits.
	if err == nil && (seconds > math.MaxInt64/units || seconds < math.MinInt64/units-1 || (value < 0) != (seconds < 0)) {
		err = errRange
	}
	return uint64(value), err
}

// AppendTimestamp writes a time as RFC 3339 does; without a zone if it is not adjusted to
// UTC. Years outside 0 to 9999 get a sign, as in ISO 8601.
func (u Unit) AppendTimestamp(dst []byte, value int64, utc bool) []byte {
	seconds, rest := split(value, u.perSecond())
	zone := ""
	if utc {
		zone = "Z"
	}
	return appendMoment(dst, stampLayout+u.fraction(rest)+zone, seconds, rest*(1e9/u.perSecond()))
}

// fraction returns the layout of the fraction of a second, which is left out if it is zero.
func (u Unit) fraction(rest int64) string {
	if rest == 0 {
		return ""
	}
	return ".000000000"[:1+u.digits()]
}

// appendMoment writes a moment in a layout of the time package.
func appendMoment(dst []byte, layout string, seconds, nanos int64) []byte {
	t := time.Unix(seconds, nanos).UTC()
	dst = append(dst, '"')
	if t.Year() > 9999 {
		dst = append(dst, '+')
	}
	return append(t.AppendFormat(dst, layout), '"')
}

// AppendInt96 writes a timestamp of old versions of Spark, Hive and Impala: nanoseconds of
// a day, and the number of the day. It has no zone, as for other readers.
func AppendInt96(dst, v []byte) []byte {
	const unixEpoch = 2440588 // as a Julian day
	seconds, rest := split(int64(binary.LittleEndian.Uint64(v)), 1e9)
	day := int64(int32(binary.LittleEndian.Uint32(v[8:])))
	return appendMoment(dst, stampLayout+Nanos.fraction(rest), (day-unixEpoch)*daySeconds+seconds, rest)
}

// AppendDate writes a number of days since 1970.
func AppendDate(dst []byte, days int64) []byte {
	return appendMoment(dst, dateLayout, days*daySeconds, 0)
}

// AppendTime writes a time of day, of which 24:00:00 is the end. One outside the day is written as
// the number it is.
func (u Unit) AppendTime(dst []byte, value int64) []byte {
	at := len(dst) + 1
	seconds, rest := split(value, u.perSecond())
	if seconds < 0 || seconds > daySeconds {
		return strconv.AppendInt(dst, value, 10)
	}
	dst = appendMoment(dst, clockLayout+u.fraction(rest), seconds, rest*(1e9/u.perSecond()))
	if seconds == daySeconds {
		copy(dst[at:], "24")
	}
	return dst
}

// split returns whole seconds and the rest, which is not negative.
func split(value, units int64) (seconds, rest int64) {
	seconds, rest = value/units, value%units
	if rest < 0 {
		seconds, rest = seconds-1, rest+units
	}
	return seconds, rest
}
