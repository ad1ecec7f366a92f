package slurm

import (
	"fmt"
	"slices"
	"strings"
)

// Command writes a command line that a shell reads as these words.
func Command(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = Quote(word)
	}
	return strings.Join(quoted, " ")
}

// plain are the characters that a shell takes as they are.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%"

// Quote quotes a word for a shell where that is necessary.
func Quote(word string) string {
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Words splits options as a shell would: at spaces, except within quotes.
func Words(text string) (words []string, err error) {
	var word strings.Builder
	inWord, quote := false, rune(0)
	for _, c := range text {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, inWord = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("%q: a quote is not closed", text)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// Options parses options of sbatch: -p gpu becomes -p=gpu's long form only if sbatch would
// accept it, so short options keep their value as a separate word.
func Options(texts []string) (options []string, err error) {
	for _, text := range texts {
		words, err := Words(text)
		if err != nil {
			return nil, err
		}
		for i := 0; i < len(words); i++ {
			word := words[i]
			if !strings.HasPrefix(word, "-") {
				return nil, fmt.Errorf("%q is not an option of sbatch: write for example %q", word, "--partition=gpu")
			}
			if i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
				separator := "="
				if !strings.HasPrefix(word, "--") {
					separator = " "
				}
				word += separator + words[i+1]
				i++
			}
			if name := optionName(word); slices.Contains(owned, name) {
				return nil, fmt.Errorf("%s: gpurun sets --%s itself", word, name)
			}
			options = append(options, word)
		}
	}
	return options, nil
}

// owned are the options that the scripts set and cannot do without.
var owned = []string{"array", "open-mode", "chdir", "output", "nodes", "ntasks", "wrap", "parsable", "job-name", "requeue"}

// short are the letters of owned options.
var short = map[string]string{"a": "array", "D": "chdir", "o": "output", "N": "nodes", "n": "ntasks", "J": "job-name"}

// optionName returns the long name of an option.
func optionName(option string) string {
	if name, ok := strings.CutPrefix(option, "--"); ok {
		name, _, _ = strings.Cut(name, "=")
		return name
	}
	letter := strings.TrimPrefix(option, "-")
	if letter == "" {
		return ""
	}
	return short[letter[:1]]
}
