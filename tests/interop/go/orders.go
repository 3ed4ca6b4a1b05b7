package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Order is one line of input: what to do, and with what.  Bytes are base64, or null.
type Order struct {
	Do             string            `json:"do"`
	Topic          string            `json:"topic"`
	Codec          string            `json:"codec"`
	Records        []Record          `json:"records"`
	RecordBytesMax int32             `json:"record_bytes_max"`
	Idempotent     bool              `json:"idempotent"`
	Where          string            `json:"where"` // beginning, end, offset or time; At says which.
	At             int64             `json:"at"`
	Reset          string            `json:"reset"` // Where to go if the offset is not there: earliest, latest or none.
	Count          int               `json:"count"`
	Question       string            `json:"question"` // earliest, latest, max timestamp, or the time that At says.
	Partitions     int32             `json:"partitions"`
	Configs        map[string]string `json:"configs"`
}

// Record is what goes in and what comes out.
type Record struct {
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     []Header `json:"headers"`
	TimestampMs int64    `json:"timestamp_ms"`
	Offset      int64    `json:"offset"`
}

type Header struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// Cluster is what a description of the cluster tells.
type Cluster struct {
	ID         string           `json:"id"`
	Controller int32            `json:"controller"`
	Brokers    map[int32]string `json:"brokers"`
}

// Client is one library.  Each call makes a client of its own, as a short program would; partition 0 is meant.
type Client interface {
	Produce(ctx context.Context, order Order) error
	Consume(ctx context.Context, order Order) ([]Record, error)
	CreateTopic(ctx context.Context, order Order) error
	CreatePartitions(ctx context.Context, order Order) error
	DescribeTopic(ctx context.Context, order Order) (map[int32]int32, error) // Each partition's leader.
	DescribeConfigs(ctx context.Context, order Order) (map[string]*string, error)
	DescribeCluster(ctx context.Context) (*Cluster, error)
	ListOffsets(ctx context.Context, order Order) (int64, error)
	DeleteTopic(ctx context.Context, order Order) error
	// Hold connects Count clients at once, lets each send its number, and keeps them until Release.
	Hold(ctx context.Context, order Order) error
	Release() error
}

const (
	orderTimeout = 30 * time.Second
	linger       = 5 * time.Millisecond
	fetchWait    = 100 * time.Millisecond
)

var errNotCovered = errors.New("not covered with this library")

func carryOut(client Client, order Order) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), orderTimeout)
	defer cancel()
	switch order.Do {
	case "produce":
		return nil, client.Produce(ctx, order)
	case "consume":
		return client.Consume(ctx, order)
	case "create_topic":
		return nil, client.CreateTopic(ctx, order)
	case "create_partitions":
		return nil, client.CreatePartitions(ctx, order)
	case "describe_topic":
		return client.DescribeTopic(ctx, order)
	case "describe_configs":
		return client.DescribeConfigs(ctx, order)
	case "describe_cluster":
		return client.DescribeCluster(ctx)
	case "list_offsets":
		return client.ListOffsets(ctx, order)
	case "delete_topic":
		return nil, client.DeleteTopic(ctx, order)
	case "hold":
		return nil, client.Hold(ctx, order)
	case "release":
		return nil, client.Release()
	}
	return nil, fmt.Errorf("no such order: %q", order.Do)
}
