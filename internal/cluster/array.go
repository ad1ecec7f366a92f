package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// ArrayText returns ascending numbers as schedulers write them: 1,3,7-9.
func ArrayText(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); i++ {
		first := numbers[i]
		for i+1 < len(numbers) && numbers[i+1] == numbers[i]+1 {
			i++
		}
		text := strconv.Itoa(first)
		switch last := numbers[i]; {
		case last == first+1:
			text += fmt.Sprintf(",%d", last)
		case last > first:
			text += fmt.Sprintf("-%d", last)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ",")
}
