package spec

import (
	"errors"
	"strconv"
	"strings"
)

// Set parses never, fail=N and fail=P%.
func (h *Halt) Set(text string) error {
	*h = Halt{}
	if text == "never" {
		return nil
	}
	number, ok := strings.CutPrefix(text, "fail=")
	percent, isPercent := strings.CutSuffix(number, "%")
	var err error
	if isPercent {
		h.Percent, err = strconv.ParseFloat(percent, 64)
	} else {
		h.Records, err = strconv.ParseInt(number, 10, 64)
	}
	if !ok || err != nil || h.Percent < 0 || h.Percent > 100 || h.Records < 0 || *h == (Halt{}) {
		return errors.New("must be never, fail=N or fail=P%")
	}
	return nil
}

// Set parses auto, true and false.
func (s *Stagger) Set(text string) error {
	*s = StaggerAuto
	if on, err := strconv.ParseBool(text); err == nil {
		*s = StaggerOff
		if on {
			*s = StaggerOn
		}
	}
	return nil
}

// Set parses NAME=FILE.npy. The name of a column may contain the sign, too.
func (a *OutputArray) Set(text string) error {
	at := strings.LastIndex(text, "=")
	if at <= 0 || at == len(text)-1 {
		return errors.New("must be NAME=FILE.npy, for example embedding=embedding.npy")
	}
	a.Column, a.Path = text[:at], text[at+1:]
	return nil
}
