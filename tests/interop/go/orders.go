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
	Idempotent     *bool             `json:"idempotent"` // Null is as the library comes.
	Where          string            `json:"where"`      // beginning, end, offset or time; At says which.
	At             int64             `json:"at"`
	Reset          string            `json:"reset"` // Where to go if the offset is not there: earliest, latest or none.
	Committed      bool              `json:"committed"`
	Count          int               `json:"count"`
	Question       string            `json:"question"` // earliest, latest, max timestamp, or the time that At says.
	Partitions     int32             `json:"partitions"`
	Configs        map[string]string `json:"configs"`

	Name            string   `json:"name"` // Of a member, which is its client id too, or of a transactor.
	Group           string   `json:"group"`
	Way             string   `json:"way"` // range, cooperative-sticky, or consumer for the protocol of KIP-848.
	Instance        string   `json:"instance"`
	Metadata        string   `json:"metadata"` // For its offsets.
	HeartbeatMs     int      `json:"heartbeat_ms"`
	SessionMs       int      `json:"session_ms"`
	FetchWaitMs     int      `json:"fetch_wait_ms"`
	TransactionalID string   `json:"transactional_id"`
	TimeoutMs       int      `json:"timeout_ms"`
	Values          [][]byte `json:"values"`
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
	Join(order Order) (Member, error)
	Committed(ctx context.Context, order Order) (map[int32]Committed, error)
	Transactor(ctx context.Context, order Order) (Transactor, error)
	// Hold connects Count clients at once, lets each send its number, and keeps them until Release.
	Hold(ctx context.Context, order Order) error
	Release() error
}

const (
	orderTimeout = 60 * time.Second
	linger       = 5 * time.Millisecond
	fetchWait    = 100 * time.Millisecond
	metadataAge  = 100 * time.Millisecond // franz-go goes on only when it has asked again who the leader is.
)

var errNotCovered = errors.New("not covered with this library")

// desk carries out orders.  It keeps members and transactors by their names.
type desk struct {
	client      Client
	members     map[string]Member
	transactors map[string]Transactor
}

func newDesk(client Client) *desk {
	return &desk{client, map[string]Member{}, map[string]Transactor{}}
}

func (d *desk) carryOut(order Order) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), orderTimeout)
	defer cancel()
	client := d.client
	switch order.Do {
	case "join", "places", "leave":
		return d.membership(order)
	case "transactor", "begin", "send", "send_offset", "commit", "abort", "close":
		return nil, d.transaction(ctx, order)
	case "committed":
		return client.Committed(ctx, order)
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
