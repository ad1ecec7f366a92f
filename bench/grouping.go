package main

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// grouping measures a kernel whose batch costs its longest text times its records, as a
// model with padding does: in input order, grouped by length, and without padding at all.
func (b *bench) grouping() error {
	const batch = 256
	lengths := naturalLengths(b.size(100_000, 10_000))
	input, err := b.makeTexts("texts.jsonl", lengths)
	if err != nil {
		return err
	}
	defer b.remove("texts.jsonl")
	bytes := 0
	for _, length := range lengths {
		bytes += length
	}
	ideal := time.Duration(b.size(4000, 200)) * time.Millisecond // for the bytes alone
	each := ideal / time.Duration(bytes/1000)                    // for 1,000 bytes
	run := func(args ...string) (time.Duration, error) {
		return b.job(input, append([]string{
			"-k", b.sleep, "--gpus", "cpu:1", "--batch-size", fmt.Sprint(batch), "--kernel-config", fmt.Sprintf(`{"kilobyte_ns":%d}`, each),
		}, args...)...)
	}
	times := make(map[string][]time.Duration)
	var padding []float64
	for range min(b.rounds, 3) {
		plain, err := run()
		if err != nil {
			return err
		}
		grouped, err := run("--group-by", "text")
		if err != nil {
			return err
		}
		times["input order"], times["grouped"] = append(times["input order"], plain), append(times["grouped"], grouped)
		padding = append(padding, grouped.Seconds()/ideal.Seconds())
	}
	b.addRatio("unequal texts, cost = longest × records: time in input order / grouped", times, "input order", "grouped", ">=", 2.2)
	b.add("the same: time grouped / ideal (no padding, no start)", "×", padding, "<=", 1.3, map[string]float64{"ideal": ideal.Seconds()})
	window := time.Duration(paddedBytes(lengths, 16*batch, batch)) * each / 1000
	all := time.Duration(paddedBytes(lengths, len(lengths), batch)) * each / 1000
	b.add("the same: cost of windows of 16 batches / of all records sorted at once", "×", []float64{window.Seconds() / all.Seconds()}, "", 0,
		map[string]float64{"windows": window.Seconds(), "sorted": all.Seconds()})
	return nil
}

// naturalLengths returns lengths as of texts of 3 to 250 words: lognormal, with a mean of
// 72 words.
func naturalLengths(n int) []int {
	random := rand.New(rand.NewPCG(3, 4))
	list := make([]int, n)
	for i := range list {
		words := math.Exp(4 + 0.8*random.NormFloat64())
		list[i] = 6 * int(max(3, min(words, 250)))
	}
	return list
}

func (b *bench) makeTexts(name string, lengths []int) (string, error) {
	path := filepath.Join(b.dir, name)
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	out := bufio.NewWriterSize(file, 1<<20)
	text := strings.Repeat("words ", 250)
	for i, length := range lengths {
		fmt.Fprintf(out, "{\"id\":%d,\"text\":%q}\n", i, text[:length])
	}
	return path, out.Flush()
}

// paddedBytes returns what batches cost that are cut from sorted windows.
func paddedBytes(lengths []int, window, batch int) (sum int) {
	for part := range slices.Chunk(lengths, window) {
		sorted := slices.Sorted(slices.Values(part))
		slices.Reverse(sorted)
		for one := range slices.Chunk(sorted, batch) {
			sum += one[0] * len(one)
		}
	}
	return sum
}
