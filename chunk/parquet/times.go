package parquet

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"time"
)

// unit is the unit of a time, with the number that Parquet gives it.
type unit int

const (
	millis unit = 1 + iota
	micros
	nanos
)

// units are the names of units in types.
var units = map[string]unit{"ms": millis, "us": micros, "ns": nanos}

// digits returns how many digits the fraction of a second has.
func (u unit) digits() int { return 3 * int(u) }

// perSecond returns how many units a second has.
func (u unit) perSecond() int64 { return pow10(u.digits()) }

var (
	errZone     = errors.New("it has a time zone: the type for that is timestamptz")
	errNoZone   = errors.New("it has no time zone: the type for that is timestamp")
	errFraction = errors.New("its fraction has more digits than the unit of the column")
	errRange    = errors.New("the column's unit cannot represent it")
	errTime     = errors.New("a time is written as 23:59:59 or 23:59:59.123456")
	errStamp    = errors.New("it must be written as 2026-01-31T23:59:59 or 2026-01-31T23:59:59.123456")
)

// number reads a fixed number of digits.
func number(text []byte, digits int) (n int64, rest []byte, ok bool) {
	if len(text) < digits {
		return 0, nil, false
	}
	for _, c := range text[:digits] {
		if c < '0' || c > '9' {
			return 0, nil, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, text[digits:], true
}

// after reads two digits that follow a byte.
func after(text []byte, c byte) (n int64, rest []byte, ok bool) {
	if text, ok = literal(text, c, c); !ok {
		return 0, nil, false
	}
	return number(text, 2)
}

// literal reads one of the given bytes.
func literal(text []byte, either, or byte) ([]byte, bool) {
	if len(text) == 0 || text[0] != either && text[0] != or {
		return nil, false
	}
	return text[1:], true
}

// parseDate reads 2026-01-31 as days since 1970.
func parseDate(text []byte) (days int64, ok bool) {
	days, rest, ok := day(text)
	return days, ok && len(rest) == 0
}

// maxYearDigits is the number of digits of the last year that 64 bits of milliseconds can
// represent.
const maxYearDigits = 9

// day reads a date at the beginning of a text. Years of more than four digits have a sign.
func day(text []byte) (days int64, rest []byte, ok bool) {
	sign, digits := int64(1), 4
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		if text[0] == '-' {
			sign = -1
		}
		text = text[1:]
		for digits < maxYearDigits && digits < len(text) && text[digits] != '-' {
			digits++
		}
	}
	year, text, ok := number(text, digits)
	if !ok {
		return 0, nil, false
	}
	month, text, ok := after(text, '-')
	if !ok {
		return 0, nil, false
	}
	day, text, ok := after(text, '-')
	at := time.Date(int(sign*year), time.Month(month), int(day), 0, 0, 0, 0, time.UTC)
	if !ok || month < 1 || month > 12 || day < 1 || at.Day() != int(day) { // it would be in the next month
		return 0, nil, false
	}
	return at.Unix() / daySeconds, text, true
}

// clock reads 23:59:59.123456 as seconds and the fraction in units.
func (u unit) clock(text []byte) (seconds, fraction int64, rest []byte, err error) {
	hour, text, ok := number(text, 2)
	minute, text, okMinute := after(text, ':')
	second, text, okSecond := after(text, ':')
	if !ok || !okMinute || !okSecond || hour > 24 || minute > 59 || second > 59 {
		return 0, 0, nil, errTime
	}
	seconds = 3600*hour + 60*minute + second
	if len(text) == 0 || text[0] != '.' {
		return seconds, 0, text, nil
	}
	text = text[1:]
	digits := 0
	for ; digits < len(text) && text[digits] >= '0' && text[digits] <= '9'; digits++ {
		switch {
		case digits < u.digits():
			fraction = 10*fraction + int64(text[digits]-'0')
		case text[digits] != '0':
			return 0, 0, nil, errFraction
		}
	}
	if digits == 0 {
		return 0, 0, nil, errTime
	}
	for i := digits; i < u.digits(); i++ {
		fraction *= 10
	}
	return seconds, fraction, text[digits:], nil
}

const daySeconds = 86400

// parseTime reads a time of day. As in ISO 8601, the end of a day is 24:00:00.
func (of traits) parseTime(text []byte) (uint64, error) {
	seconds, fraction, rest, err := of.unit.clock(text)
	if err == nil && (len(rest) > 0 || seconds > daySeconds || seconds == daySeconds && fraction > 0) {
		err = errTime
	}
	return uint64(seconds*of.unit.perSecond() + fraction), err
}

// parseTimestamp reads a date and a time, with a zone if the type has one. Between them is a T,
// or a space, as some programs write.
func (of traits) parseTimestamp(text []byte) (uint64, error) {
	days, rest, ok := day(text)
	if ok {
		rest, ok = literal(rest, 'T', ' ')
	}
	if !ok {
		return 0, errStamp
	}
	seconds, fraction, rest, err := of.unit.clock(rest)
	if err == nil && seconds >= daySeconds {
		err = errStamp
	}
	if err != nil {
		return 0, err
	}
	offset, hasZone, ok := zone(rest)
	switch {
	case !ok:
		return 0, errStamp
	case hasZone && of.kind == Timestamp:
		return 0, errZone
	case !hasZone && of.kind == TimestampUTC:
		return 0, errNoZone
	}
	seconds += days*daySeconds - offset
	units := of.unit.perSecond()
	switch value := seconds*units + fraction; {
	// In the first representable second the product underflows, but the sum with the fraction fits.
	case seconds > math.MaxInt64/units, seconds < math.MinInt64/units-1, (value < 0) != (seconds < 0):
		return 0, errRange
	default:
		return uint64(value), nil
	}
}

// zone reads Z, +02:00 or nothing.
func zone(text []byte) (seconds int64, has, ok bool) {
	switch {
	case len(text) == 0:
		return 0, false, true
	case string(text) == "Z":
		return 0, true, true
	case len(text) != 6 || text[0] != '+' && text[0] != '-' || text[3] != ':':
		return 0, false, false
	}
	hours, _, okHours := number(text[1:], 2)
	minutes, _, okMinutes := number(text[4:], 2)
	if !okHours || !okMinutes || hours > 23 || minutes > 59 {
		return 0, false, false
	}
	seconds = 3600*hours + 60*minutes
	if text[0] == '-' {
		seconds = -seconds
	}
	return seconds, true, true
}

// AppendTimestamp writes a time as RFC 3339 does; without a zone if it is not adjusted to
// UTC. Years outside 0 to 9999 get a sign, as in ISO 8601.
func (t *TimeType) AppendTimestamp(dst []byte, value int64) []byte {
	u := t.Unit.unit()
	seconds, rest := split(value, u.perSecond())
	zone := ""
	if t.UTC {
		zone = "Z"
	}
	return appendMoment(dst, "2006-01-02T15:04:05"+u.fraction(rest)+zone, seconds, rest*(1e9/u.perSecond()))
}

// fraction returns the layout of the fraction of a second, which is left out if it is zero.
func (u unit) fraction(rest int64) string {
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
	return appendMoment(dst, "2006-01-02T15:04:05"+nanos.fraction(rest), (day-unixEpoch)*daySeconds+seconds, rest)
}

// AppendDate writes a number of days since 1970.
func AppendDate(dst []byte, days int64) []byte {
	return appendMoment(dst, "2006-01-02", days*daySeconds, 0)
}

// AppendTime writes a time of day, of which 24:00:00 is the end. One outside the day is written as
// the number it is.
func (t *TimeType) AppendTime(dst []byte, value int64) []byte {
	u, at := t.Unit.unit(), len(dst)+1
	seconds, rest := split(value, u.perSecond())
	if seconds < 0 || seconds > daySeconds {
		return strconv.AppendInt(dst, value, 10)
	}
	dst = appendMoment(dst, "15:04:05"+u.fraction(rest), seconds, rest*(1e9/u.perSecond()))
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

func pow10(n int) int64 {
	p := int64(1)
	for range n {
		p *= 10
	}
	return p
}
