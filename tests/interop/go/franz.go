package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct {
	address string
	held    []*kgo.Client
}

func newFranz(address, _ string) (Client, error) { return &franz{address: address}, nil }

var franzCodecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func (f *franz) connect(options ...kgo.Opt) (*kgo.Client, error) {
	common := []kgo.Opt{kgo.SeedBrokers(f.address), kgo.MetadataMinAge(metadataAge)}
	return kgo.NewClient(append(common, options...)...)
}

func (f *franz) producer(order Order) (*kgo.Client, error) {
	options := []kgo.Opt{
		kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(franzCodecs[order.Codec]),
		kgo.ProducerLinger(linger),
		kgo.ProducerBatchMaxBytes(order.RecordBytesMax),
	}
	if order.Idempotent != nil && !*order.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	return f.connect(options...)
}

func (f *franz) Produce(ctx context.Context, order Order) error {
	client, err := f.producer(order)
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, one := range order.Records {
		records = append(records, toFranz(order.Topic, one))
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func toFranz(topic string, one Record) *kgo.Record {
	record := &kgo.Record{Topic: topic, Key: one.Key, Value: one.Value, Timestamp: time.UnixMilli(one.TimestampMs)}
	for _, header := range one.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
	}
	return record
}

func (f *franz) Consume(ctx context.Context, order Order) ([]Record, error) {
	from := map[string]kgo.Offset{
		"beginning": kgo.NewOffset().AtStart(),
		"end":       kgo.NewOffset().AtEnd(),
		"offset":    kgo.NewOffset().At(order.At),
		"time":      kgo.NewOffset().AfterMilli(order.At),
	}[order.Where]
	reset := map[string]kgo.Offset{
		"earliest": kgo.NewOffset().AtStart(),
		"latest":   kgo.NewOffset().AtEnd(),
		"none":     kgo.NoResetOffset(),
	}[order.Reset]
	isolation := kgo.ReadUncommitted()
	if order.Committed {
		isolation = kgo.ReadCommitted()
	}
	client, err := f.connect(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{order.Topic: {0: from}}),
		kgo.ConsumeResetOffset(reset),
		kgo.FetchMaxWait(fetchWait),
		kgo.FetchIsolationLevel(isolation),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var found []Record
	for len(found) < order.Count {
		fetches := client.PollRecords(ctx, order.Count-len(found))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, fromFranz(record)) })
	}
	return found, nil
}

func fromFranz(record *kgo.Record) Record {
	one := Record{
		Key:         record.Key,
		Value:       record.Value,
		Headers:     []Header{},
		TimestampMs: record.Timestamp.UnixMilli(),
		Offset:      record.Offset,
	}
	for _, header := range record.Headers {
		one.Headers = append(one.Headers, Header{header.Key, header.Value})
	}
	return one
}

func (f *franz) Hold(ctx context.Context, order Order) error {
	outcomes := make(chan error)
	for number := range order.Count {
		client, err := f.producer(order)
		if err != nil {
			return err
		}
		f.held = append(f.held, client)
		record := &kgo.Record{Topic: order.Topic, Value: fmt.Append(nil, number)}
		go func() { outcomes <- client.ProduceSync(ctx, record).FirstErr() }()
	}
	var failed error
	for range order.Count {
		if err := <-outcomes; err != nil {
			failed = err
		}
	}
	return failed
}

func (f *franz) Release() error {
	for _, client := range f.held {
		client.Close()
	}
	f.held = nil
	return nil
}
