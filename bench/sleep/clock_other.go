//go:build !linux

package main

import "time"

type clock struct{}

func newClock() (*clock, error) { return &clock{}, nil }

func (*clock) sleep(length time.Duration) error {
	time.Sleep(length)
	return nil
}
