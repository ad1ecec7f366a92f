package gpu

// SetClock replaces the source of time before the first Look.
func (o *Observer) SetClock(c Clock) { o.monitor.options.Clock = c }
