package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// row is one line of the table.
type row struct {
	Name string `json:"name"`
	// Value is the median over the rounds; Low and High are the extremes.
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Unit  string  `json:"unit"`
	// Wanted is "≤ 2" or "≥ 15"; empty for a line that is only for comparison.
	Wanted string `json:"wanted,omitempty"`
	Holds  *bool  `json:"holds,omitempty"`
	// Seconds are the medians behind a ratio.
	Seconds map[string]float64 `json:"seconds,omitempty"`
}

// add adds a line. wanted is "<=" or ">=" and applies to limit, or is "" for no target.
func (b *bench) add(name, unit string, values []float64, wanted string, limit float64, seconds map[string]float64) {
	slices.Sort(values)
	r := row{Name: name, Unit: unit, Value: median(values), Low: values[0], High: values[len(values)-1], Seconds: seconds}
	switch wanted {
	case "<=":
		r.Wanted, r.Holds = fmt.Sprintf("≤ %g", limit), new(r.Value <= limit)
	case ">=":
		r.Wanted, r.Holds = fmt.Sprintf("≥ %g", limit), new(r.Value >= limit)
	}
	b.rows = append(b.rows, r)
}

// addRatio adds the ratio of two sets of times, round by round.
func (b *bench) addRatio(name string, times map[string][]time.Duration, over, under, wanted string, limit float64) {
	var ratios []float64
	for i := range times[over] {
		ratios = append(ratios, times[over][i].Seconds()/times[under][i].Seconds())
	}
	b.add(name, "×", ratios, wanted, limit, map[string]float64{over: seconds(times[over]), under: seconds(times[under])})
}

// seconds returns the median of times.
func seconds(times []time.Duration) float64 {
	values := make([]float64, len(times))
	for i, t := range times {
		values[i] = t.Seconds()
	}
	slices.Sort(values)
	return median(values)
}

// median returns the median of sorted values.
func median(values []float64) float64 {
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// print writes the table to standard output, and as JSON to the file out unless out is
// empty.
func (b *bench) print(out string) error {
	where := b.surroundings()
	fmt.Printf("\n%s; %d alternating rounds%s\n\n", where, b.rounds, map[bool]string{true: "; QUICK: small sizes, figures mean little"}[b.quick])
	fmt.Printf("| what | median | spread | wanted | | seconds |\n|---|---|---|---|---|---|\n")
	for _, r := range b.rows {
		fmt.Printf("| %s | %s %s | %s–%s | %s | %s | %s |\n", r.Name, figure(r.Value), r.Unit, figure(r.Low), figure(r.High),
			r.Wanted, r.verdict(), listed(r.Seconds))
	}
	if out == "" {
		return nil
	}
	data, err := json.MarshalIndent(map[string]any{
		"surroundings": where, "rounds": b.rounds, "quick": b.quick, "rows": b.rows,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(data, '\n'), 0o644)
}

func (r row) verdict() string {
	switch {
	case r.Holds == nil:
		return ""
	case *r.Holds:
		return "holds"
	}
	return "FALLS SHORT"
}

func figure(f float64) string {
	if f >= 100 {
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

func listed(seconds map[string]float64) string {
	var list []string
	for name, s := range seconds {
		list = append(list, fmt.Sprintf("%s %.2f", name, s))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
