package main

import (
	"context"
	"fmt"
)

// Transactor is a transactional producer; partition 0 is meant.
type Transactor interface {
	Begin() error
	Send(ctx context.Context, topic string, values [][]byte) error
	// SendOffset is for the group and the topic that the transactor was made for.
	SendOffset(ctx context.Context, offset int64) error
	End(ctx context.Context, commit bool) error
	Close() error
}

func (d *desk) transaction(ctx context.Context, order Order) error {
	if order.Do == "transactor" {
		transactor, err := d.client.Transactor(ctx, order)
		if err == nil {
			d.transactors[order.Name] = transactor
		}
		return err
	}
	transactor, ok := d.transactors[order.Name]
	if !ok {
		return fmt.Errorf("no such transactor: %q", order.Name)
	}
	switch order.Do {
	case "begin":
		return transactor.Begin()
	case "send":
		return transactor.Send(ctx, order.Topic, order.Values)
	case "send_offset":
		return transactor.SendOffset(ctx, order.At)
	case "commit", "abort":
		return transactor.End(ctx, order.Do == "commit")
	}
	delete(d.transactors, order.Name)
	return transactor.Close()
}
