package exec_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// unruly answers each number with seven times the number, and also writes extra lines.
func unruly(args []string) {
	flags := flag.NewFlagSet("unruly", flag.ExitOnError)
	delay := flags.Duration("delay", 0, "for each record, up to")
	at := flags.Int("at", 0, "write a stray line with this record, counted from 1")
	one := flags.Int("one", 0, "write a stray line with this record's number")
	dies := flags.Int("dies", 0, "exit with status 5 at this record's number, instead of an answer")
	chance := flags.Float64("chance", 0, "write a stray line with any record")
	late := flags.Duration("late", 0, "write it so much later, up to")
	text := flags.String("text", `{"v":0}`, "the stray line")
	pool := flags.Int("pool", 0, "read ahead, and compute with this many goroutines")
	_ = flags.Parse(args)
	random := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	wait := func(most time.Duration) {
		if most > 0 {
			time.Sleep(time.Duration(random.Int64N(int64(most))))
		}
	}
	var writing sync.Mutex
	say := func(line string) {
		writing.Lock()
		defer writing.Unlock()
		_, _ = io.WriteString(os.Stdout, line+"\n")
	}
	lines := bufio.NewScanner(os.Stdin)
	seen := 0
	answer := func(line string) {
		var n int
		_, _ = fmt.Sscanf(line, `{"id":%d}`, &n)
		seen++
		wait(*delay)
		if seen == *at || n == *one && *one > 0 || random.Float64() < *chance {
			if *late == 0 {
				say(*text)
			} else {
				pause := time.Duration(random.Int64N(int64(*late)))
				time.AfterFunc(pause, func() { say(*text) })
			}
		}
		if n == *dies && *dies > 0 {
			os.Exit(5)
		}
		say(fmt.Sprintf(`{"id":%d,"v":%d}`, n, 7*n))
	}
	if *pool == 0 {
		for lines.Scan() {
			answer(lines.Text())
		}
		return
	}
	queue, done := make(chan string, *pool), make(chan struct{})
	go func() {
		defer close(done)
		for line := range queue {
			answer(line)
		}
	}()
	for lines.Scan() {
		queue <- lines.Text()
	}
	close(queue)
	<-done
}
