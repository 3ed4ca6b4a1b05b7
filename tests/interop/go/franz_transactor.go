package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
)

// franzTransactor is alone, or the session of a member of a group: that is how the library sends offsets.
type franzTransactor struct {
	client  *kgo.Client
	session *kgo.GroupTransactSession
}

func (f *franz) Transactor(ctx context.Context, order Order) (Transactor, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(f.address),
		kgo.TransactionalID(order.TransactionalID),
		kgo.TransactionTimeout(milliseconds(order.TimeoutMs)),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	transactor, err := franzTransactorOf(order, options)
	if err != nil {
		return nil, err
	}
	// It would ask for its id when it first sends.
	_, _, err = transactor.client.ProducerID(ctx)
	return transactor, err
}

func franzTransactorOf(order Order, options []kgo.Opt) (*franzTransactor, error) {
	if order.Group == "" {
		client, err := kgo.NewClient(options...)
		return &franzTransactor{client: client}, err
	}
	session, err := kgo.NewGroupTransactSession(append(
		options,
		kgo.ConsumerGroup(order.Group),
		kgo.ConsumeTopics(order.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(fetchWait),
	)...)
	if err != nil {
		return nil, err
	}
	return &franzTransactor{session.Client(), session}, nil
}

func (t *franzTransactor) Begin() error {
	if t.session != nil {
		return t.session.Begin()
	}
	return t.client.BeginTransaction()
}

func (t *franzTransactor) Send(ctx context.Context, topic string, values [][]byte) error {
	var records []*kgo.Record
	for _, value := range values {
		records = append(records, &kgo.Record{Topic: topic, Value: value})
	}
	return t.client.ProduceSync(ctx, records...).FirstErr()
}

// SendOffset reads as far: what the session has read, it commits with the transaction.
func (t *franzTransactor) SendOffset(ctx context.Context, offset int64) error {
	for place := int64(0); place < offset; {
		fetches := t.session.PollRecords(ctx, int(offset-place))
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) { place = record.Offset + 1 })
	}
	return nil
}

func (t *franzTransactor) End(ctx context.Context, commit bool) error {
	if t.session == nil {
		return t.client.EndTransaction(ctx, kgo.TransactionEndTry(commit))
	}
	committed, err := t.session.End(ctx, kgo.TransactionEndTry(commit))
	if err == nil && committed != commit {
		return errors.New("the session aborted it")
	}
	return err
}

func (t *franzTransactor) Close() error {
	if t.session != nil {
		t.session.Close()
	} else {
		t.client.Close()
	}
	return nil
}
