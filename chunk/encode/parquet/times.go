package parquet

import (
	"errors"
	"math"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
)

// timeUnit is the unit of a time, with the number that Parquet gives it.
type timeUnit int

const (
	millis timeUnit = spec.UnitMillis
	micros timeUnit = spec.UnitMicros
	nanos  timeUnit = spec.UnitNanos
)

// units are the names of units in types.
var units = map[string]timeUnit{"ms": millis, "us": micros, "ns": nanos}

// digits returns how many digits the fraction of a second has.
func (u timeUnit) digits() int { return 3 * int(u) }

// perSecond returns how many units a second has.
func (u timeUnit) perSecond() int64 { return [...]int64{millis: 1e3, micros: 1e6, nanos: 1e9}[u] }

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
	if text, ok = literal(text, '-', '-'); !ok {
		return 0, nil, false
	}
	month, text, ok := number(text, 2)
	if !ok {
		return 0, nil, false
	}
	if text, ok = literal(text, '-', '-'); !ok {
		return 0, nil, false
	}
	day, text, ok := number(text, 2)
	year *= sign
	if !ok || month < 1 || month > 12 || day < 1 || day > daysOf(year, month) {
		return 0, nil, false
	}
	return daysSince1970(year, month, day), text, true
}

func daysOf(year, month int64) int64 {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// daysSince1970 counts days in the Gregorian calendar. Years begin in March here, so that a leap
// day is the last day of its year.
func daysSince1970(year, month, day int64) int64 {
	if month <= 2 {
		year, month = year-1, month+12
	}
	era := year / 400
	if year < 0 {
		era = (year - 399) / 400
	}
	inEra := year - 400*era
	inYear := (153*(month-3)+2)/5 + day - 1
	return era*146097 + inEra*365 + inEra/4 - inEra/100 + inYear - 719468
}

// clock reads 23:59:59.123456 as seconds and the fraction in units.
func (u timeUnit) clock(text []byte) (seconds, fraction int64, rest []byte, err error) {
	for i, limit := range []int64{24, 59, 59} {
		if i > 0 {
			var ok bool
			if text, ok = literal(text, ':', ':'); !ok {
				return 0, 0, nil, errTime
			}
		}
		n, after, ok := number(text, 2)
		if !ok || n > limit {
			return 0, 0, nil, errTime
		}
		seconds, text = 60*seconds+n, after
	}
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
