package cluster

import (
	"fmt"
	"strings"
)

// ArrayText returns ascending numbers as schedulers write them: 1,3,7-9.
func ArrayText(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		switch {
		case last == i:
			fmt.Fprint(&b, numbers[i])
		case last == i+1:
			fmt.Fprintf(&b, "%d,%d", numbers[i], numbers[last])
		default:
			fmt.Fprintf(&b, "%d-%d", numbers[i], numbers[last])
		}
		i = last + 1
	}
	return b.String()
}
