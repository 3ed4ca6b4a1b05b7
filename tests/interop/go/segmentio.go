package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

type segmentio struct {
	address string
	client  *kafka.Client
}

var segmentioCodecs = map[string]kafka.Compression{
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

func newSegmentio(address, _ string) (Client, error) {
	return &segmentio{address, &kafka.Client{Addr: kafka.TCP(address)}}, nil
}

func (s *segmentio) Produce(ctx context.Context, order Order) error {
	if order.Idempotent != nil && *order.Idempotent {
		return errNotCovered
	}
	writer := &kafka.Writer{
		Addr:                   kafka.TCP(s.address),
		Topic:                  order.Topic,
		RequiredAcks:           kafka.RequireAll,
		BatchTimeout:           linger,
		Compression:            segmentioCodecs[order.Codec],
		BatchBytes:             int64(order.RecordBytesMax),
		AllowAutoTopicCreation: true,
		Balancer:               kafka.BalancerFunc(func(kafka.Message, ...int) int { return 0 }),
	}
	defer writer.Close()
	var messages []kafka.Message
	for _, one := range order.Records {
		message := kafka.Message{Key: one.Key, Value: one.Value, Time: time.UnixMilli(one.TimestampMs)}
		for _, header := range one.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header.Name, Value: header.Value})
		}
		messages = append(messages, message)
	}
	return firstOf(writer.WriteMessages(ctx, messages...))
}

// firstOf is the first of many errors, if there is one for each message.
func firstOf(err error) error {
	var each kafka.WriteErrors
	if errors.As(err, &each) {
		for _, one := range each {
			if one != nil {
				return one
			}
		}
	}
	return err
}

func (s *segmentio) Consume(ctx context.Context, order Order) ([]Record, error) {
	isolation := kafka.ReadUncommitted
	if order.Committed {
		isolation = kafka.ReadCommitted
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:               []string{s.address},
		Topic:                 order.Topic,
		MaxWait:               fetchWait,
		MaxBytes:              10 << 20,
		IsolationLevel:        isolation,
		OffsetOutOfRangeError: order.Reset == "none",
	})
	defer reader.Close()
	if err := seek(ctx, reader, order); err != nil {
		return nil, err
	}
	var found []Record
	for len(found) < order.Count {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return nil, err
		}
		found = append(found, fromSegmentio(message))
	}
	return found, nil
}

func seek(ctx context.Context, reader *kafka.Reader, order Order) error {
	switch order.Where {
	case "beginning":
		return reader.SetOffset(kafka.FirstOffset)
	case "end":
		return reader.SetOffset(kafka.LastOffset)
	case "offset":
		return reader.SetOffset(order.At)
	}
	return reader.SetOffsetAt(ctx, time.UnixMilli(order.At))
}

func fromSegmentio(message kafka.Message) Record {
	one := Record{
		Key:         message.Key,
		Value:       message.Value,
		Headers:     []Header{},
		TimestampMs: message.Time.UnixMilli(),
		Offset:      message.Offset,
	}
	for _, header := range message.Headers {
		one.Headers = append(one.Headers, Header{header.Key, header.Value})
	}
	return one
}

func (s *segmentio) CreateTopic(ctx context.Context, order Order) error {
	topic := kafka.TopicConfig{Topic: order.Topic, NumPartitions: int(order.Partitions), ReplicationFactor: 1}
	for key, value := range order.Configs {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: key, ConfigValue: value})
	}
	made, err := s.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	if err != nil {
		return err
	}
	return made.Errors[order.Topic]
}

func (s *segmentio) CreatePartitions(ctx context.Context, order Order) error {
	made, err := s.client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: order.Topic, Count: order.Partitions}},
	})
	if err != nil {
		return err
	}
	return made.Errors[order.Topic]
}

// DescribeTopic asks without the client's cache, which would not know of new partitions for some seconds.
func (s *segmentio) DescribeTopic(ctx context.Context, order Order) (map[int32]int32, error) {
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(s.address), Transport: transport}
	found, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{order.Topic}})
	if err != nil {
		return nil, err
	}
	leaders := map[int32]int32{}
	for _, partition := range found.Topics[0].Partitions {
		leaders[int32(partition.ID)] = int32(partition.Leader.ID)
	}
	return leaders, found.Topics[0].Error
}

func (s *segmentio) DescribeConfigs(ctx context.Context, order Order) (map[string]*string, error) {
	topic := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: order.Topic}
	found, err := s.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{topic},
	})
	if err != nil {
		return nil, err
	}
	configs := map[string]*string{}
	for _, entry := range found.Resources[0].ConfigEntries {
		configs[entry.ConfigName] = &entry.ConfigValue
	}
	return configs, found.Resources[0].Error
}

func (s *segmentio) DescribeCluster(ctx context.Context) (*Cluster, error) {
	found, err := s.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	cluster := Cluster{found.ClusterID, int32(found.Controller.ID), map[int32]string{}}
	for _, broker := range found.Brokers {
		cluster.Brokers[int32(broker.ID)] = fmt.Sprintf("%s:%d", broker.Host, broker.Port)
	}
	return &cluster, nil
}

func (s *segmentio) ListOffsets(ctx context.Context, order Order) (int64, error) {
	question := kafka.TimeOffsetOf(0, time.UnixMilli(order.At))
	switch order.Question {
	case "earliest":
		question = kafka.FirstOffsetOf(0)
	case "latest":
		question = kafka.LastOffsetOf(0)
	case "max timestamp":
		return 0, errNotCovered
	}
	partition, err := s.listed(ctx, order.Topic, question)
	if err != nil {
		return 0, err
	}
	for offset := range partition.Offsets { // The answer to a time; there is at most one.
		return offset, partition.Error
	}
	return max(partition.FirstOffset, partition.LastOffset), partition.Error // What was not asked for is -1.
}

// listed asks again while the client asks any broker for a topic that it has not heard of: it looks every six seconds.
func (s *segmentio) listed(
	ctx context.Context, topic string, question kafka.OffsetRequest,
) (kafka.PartitionOffsets, error) {
	for {
		topics := map[string][]kafka.OffsetRequest{topic: {question}}
		found, err := s.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: topics})
		if err != nil {
			return kafka.PartitionOffsets{}, err
		}
		partition := found.Topics[topic][0]
		if !errors.Is(partition.Error, kafka.NotLeaderForPartition) {
			return partition, nil
		}
		select {
		case <-ctx.Done():
			return partition, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *segmentio) DeleteTopic(ctx context.Context, order Order) error {
	response, err := s.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{order.Topic}})
	if err != nil {
		return err
	}
	return response.Errors[order.Topic]
}

func (s *segmentio) Hold(context.Context, Order) error { return errNotCovered }

func (s *segmentio) Release() error { return errNotCovered }
