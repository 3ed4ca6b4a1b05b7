package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

type ibm struct {
	address string
	version sarama.KafkaVersion
	held    []sarama.SyncProducer
}

func newSarama(address, version string) (Client, error) {
	if version == "" {
		return &ibm{address: address, version: sarama.DefaultVersion}, nil
	}
	parsed, err := sarama.ParseKafkaVersion(version)
	return &ibm{address: address, version: parsed}, err
}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func (s *ibm) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = s.version
	config.Consumer.Return.Errors = true
	config.Consumer.MaxWaitTime = fetchWait
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	return config
}

func (s *ibm) producer(order Order) (sarama.SyncProducer, error) {
	config := s.config()
	config.Producer.Compression = saramaCodecs[order.Codec]
	config.Producer.Flush.Frequency = linger
	config.Producer.MaxMessageBytes = int(order.RecordBytesMax)
	if order.Idempotent != nil && *order.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	return sarama.NewSyncProducer([]string{s.address}, config)
}

func (s *ibm) Produce(_ context.Context, order Order) error {
	producer, err := s.producer(order)
	if err != nil {
		return err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for _, one := range order.Records {
		messages = append(messages, toSarama(order.Topic, one))
	}
	err = producer.SendMessages(messages)
	var each sarama.ProducerErrors
	if errors.As(err, &each) {
		return each[0]
	}
	return err
}

func toSarama(topic string, one Record) *sarama.ProducerMessage {
	message := &sarama.ProducerMessage{Topic: topic, Timestamp: time.UnixMilli(one.TimestampMs)}
	if one.Key != nil {
		message.Key = sarama.ByteEncoder(one.Key)
	}
	if one.Value != nil {
		message.Value = sarama.ByteEncoder(one.Value)
	}
	for _, header := range one.Headers {
		message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
	}
	return message
}

func (s *ibm) Consume(ctx context.Context, order Order) ([]Record, error) {
	config := s.config()
	if order.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	client, err := sarama.NewClient([]string{s.address}, config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	partition, err := start(client, consumer, order)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	var found []Record
	for len(found) < order.Count {
		select {
		case message := <-partition.Messages():
			found = append(found, fromSarama(message))
		case err := <-partition.Errors():
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return found, nil
}

// start goes on by itself where the offset is not there, since sarama only says so.
func start(client sarama.Client, consumer sarama.Consumer, order Order) (sarama.PartitionConsumer, error) {
	offset, err := offsetOf(client, order)
	if err != nil {
		return nil, err
	}
	partition, err := consumer.ConsumePartition(order.Topic, 0, offset)
	if errors.Is(err, sarama.ErrOffsetOutOfRange) && order.Reset != "none" {
		place := map[string]int64{"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest}[order.Reset]
		return consumer.ConsumePartition(order.Topic, 0, place)
	}
	return partition, err
}

func offsetOf(client sarama.Client, order Order) (int64, error) {
	switch order.Where {
	case "beginning":
		return sarama.OffsetOldest, nil
	case "end":
		return sarama.OffsetNewest, nil
	case "offset":
		return order.At, nil
	}
	return client.GetOffset(order.Topic, 0, order.At)
}

func fromSarama(message *sarama.ConsumerMessage) Record {
	one := Record{
		Key:         message.Key,
		Value:       message.Value,
		Headers:     []Header{},
		TimestampMs: message.Timestamp.UnixMilli(),
		Offset:      message.Offset,
	}
	for _, header := range message.Headers {
		one.Headers = append(one.Headers, Header{string(header.Key), header.Value})
	}
	return one
}

func (s *ibm) Hold(_ context.Context, order Order) error {
	producers := make(chan sarama.SyncProducer)
	outcomes := make(chan error)
	for number := range order.Count {
		go func() {
			producer, err := s.producer(order)
			if err == nil {
				one := Record{Value: fmt.Append(nil, number), TimestampMs: time.Now().UnixMilli()}
				_, _, err = producer.SendMessage(toSarama(order.Topic, one))
				producers <- producer
			}
			outcomes <- err
		}()
	}
	var failed error
	for ended := 0; ended < order.Count; {
		select {
		case producer := <-producers:
			s.held = append(s.held, producer)
		case err := <-outcomes:
			ended++
			if err != nil {
				failed = err
			}
		}
	}
	return failed
}

func (s *ibm) Release() error {
	for _, producer := range s.held {
		producer.Close()
	}
	s.held = nil
	return nil
}
