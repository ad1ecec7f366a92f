package main

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/gpurun/gpurun/plugins"
)

// customer is a record. Files of different formats have numbers or texts.
type customer struct {
	ID      json.Number `json:"id"`
	Email   string      `json:"email"`
	Country string      `json:"country"`
	Orders  json.Number `json:"orders"`
}

// clean normalizes customers and rejects those without a valid address.
type clean struct{ plugins.Base }

func (clean) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	for i := range batch.Len() {
		var c customer
		if err := json.Unmarshal(batch.Record(i), &c); err != nil {
			results.Fail(i, err.Error())
			continue
		}
		c.Email, c.Country = strings.ToLower(strings.TrimSpace(c.Email)), strings.ToUpper(cmp.Or(c.Country, "?"))
		if !strings.Contains(c.Email, "@") {
			results.Failf(i, "%q is not an address", c.Email)
			continue
		}
		line, err := json.Marshal(c)
		if err != nil {
			return err
		}
		results.Line(i, line)
	}
	return nil
}

// segment adds a column.
type segment struct{ plugins.Base }

func (segment) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	large := make([]int64, batch.Len())
	for i := range large {
		var c customer
		if err := json.Unmarshal(batch.Record(i), &c); err != nil {
			results.Fail(i, err.Error())
			continue
		}
		if n, err := c.Orders.Int64(); err == nil && n >= 10 {
			large[i] = 1
		}
	}
	results.Column(plugins.Int64s("large", 0, large))
	return nil
}
