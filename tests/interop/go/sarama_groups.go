package main

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
)

type saramaMember struct {
	places
	metadata string
	group    sarama.ConsumerGroup
	stop     context.CancelFunc
	ended    chan struct{}
}

func (s *ibm) Join(order Order) (Member, error) {
	config := s.config()
	config.ClientID = order.Name
	config.Consumer.Return.Errors = false
	config.Consumer.MaxWaitTime = milliseconds(order.FetchWaitMs)
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.InstanceId = order.Instance
	config.Consumer.Group.Heartbeat.Interval = milliseconds(order.HeartbeatMs)
	config.Consumer.Group.Session.Timeout = milliseconds(order.SessionMs)
	if order.Way == "cooperative-sticky" {
		strategies := []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
		config.Consumer.Group.Rebalance.GroupStrategies = strategies
	} // Range is how it comes.
	group, err := sarama.NewConsumerGroup([]string{s.address}, order.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	member := &saramaMember{metadata: order.Metadata, group: group, stop: stop, ended: make(chan struct{})}
	go member.read(ctx, order.Topic)
	return member, nil
}

func (m *saramaMember) read(ctx context.Context, topic string) {
	defer close(m.ended)
	for ctx.Err() == nil {
		if err := m.group.Consume(ctx, []string{topic}, m); err != nil && ctx.Err() == nil {
			m.fail(err)
			return
		}
	}
}

func (m *saramaMember) Setup(sarama.ConsumerGroupSession) error { return nil }

func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case one, open := <-claim.Messages():
			if !open {
				return nil
			}
			m.add(one.Partition, one.Offset, one.Value)
			session.MarkMessage(one, m.metadata)
			session.Commit()
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *saramaMember) Leave() error {
	m.stop()
	<-m.ended
	return m.group.Close()
}

func (s *ibm) Committed(_ context.Context, order Order) (map[int32]Committed, error) {
	found := map[int32]Committed{}
	err := s.asAdmin(func(admin sarama.ClusterAdmin) error {
		response, err := admin.ListConsumerGroupOffsets(order.Group, nil)
		if err != nil {
			return err
		}
		for number, one := range response.Blocks[order.Topic] {
			found[number] = Committed{one.Offset, one.Metadata}
		}
		return nil
	})
	return found, err
}

type saramaTransactor struct {
	producer sarama.SyncProducer
	group    string
	source   string
}

func (s *ibm) Transactor(_ context.Context, order Order) (Transactor, error) {
	config := s.config()
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = order.TransactionalID
	config.Producer.Transaction.Timeout = milliseconds(order.TimeoutMs)
	producer, err := sarama.NewSyncProducer([]string{s.address}, config)
	return &saramaTransactor{producer, order.Group, order.Topic}, err
}

func (t *saramaTransactor) Begin() error { return t.producer.BeginTxn() }

func (t *saramaTransactor) Send(_ context.Context, topic string, values [][]byte) error {
	var messages []*sarama.ProducerMessage
	for _, value := range values {
		messages = append(messages, &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(value)})
	}
	err := t.producer.SendMessages(messages)
	var each sarama.ProducerErrors
	if errors.As(err, &each) {
		return each[0]
	}
	return err
}

func (t *saramaTransactor) SendOffset(_ context.Context, offset int64) error {
	place := &sarama.PartitionOffsetMetadata{Partition: 0, Offset: offset}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{t.source: {place}}
	return t.producer.AddOffsetsToTxn(offsets, t.group)
}

func (t *saramaTransactor) End(_ context.Context, commit bool) error {
	if commit {
		return t.producer.CommitTxn()
	}
	return t.producer.AbortTxn()
}

func (t *saramaTransactor) Close() error { return t.producer.Close() }
