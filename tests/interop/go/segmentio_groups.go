package main

import (
	"context"

	"github.com/segmentio/kafka-go"
)

type segmentioMember struct {
	places
	reader *kafka.Reader
	stop   context.CancelFunc
	ended  chan struct{}
}

func (s *segmentio) Join(order Order) (Member, error) {
	dialer := *kafka.DefaultDialer
	dialer.ClientID = order.Name
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:           []string{s.address},
		Dialer:            &dialer,
		GroupID:           order.Group,
		Topic:             order.Topic,
		StartOffset:       kafka.FirstOffset,
		MaxWait:           milliseconds(order.FetchWaitMs),
		HeartbeatInterval: milliseconds(order.HeartbeatMs),
		SessionTimeout:    milliseconds(order.SessionMs),
	}) // Range comes first of its balancers.
	ctx, stop := context.WithCancel(context.Background())
	member := &segmentioMember{reader: reader, stop: stop, ended: make(chan struct{})}
	go member.read(ctx)
	return member, nil
}

func (m *segmentioMember) read(ctx context.Context) {
	defer close(m.ended)
	for {
		one, err := m.reader.FetchMessage(ctx)
		if err == nil {
			m.add(int32(one.Partition), one.Offset, one.Value)
			err = m.reader.CommitMessages(ctx, one)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			m.fail(err)
			return
		}
	}
}

func (m *segmentioMember) Leave() error {
	m.stop()
	<-m.ended
	return m.reader.Close()
}

func (s *segmentio) Committed(ctx context.Context, order Order) (map[int32]Committed, error) {
	leaders, err := s.DescribeTopic(ctx, order)
	if err != nil {
		return nil, err
	}
	var partitions []int
	for number := range leaders {
		partitions = append(partitions, int(number))
	}
	topics := map[string][]int{order.Topic: partitions}
	response, err := s.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: order.Group, Topics: topics})
	if err != nil {
		return nil, err
	}
	found := map[int32]Committed{}
	for _, one := range response.Topics[order.Topic] {
		if one.Error != nil {
			return nil, one.Error
		}
		if one.CommittedOffset >= 0 {
			found[int32(one.Partition)] = Committed{one.CommittedOffset, one.Metadata}
		}
	}
	return found, response.Error
}

func (s *segmentio) Transactor(context.Context, Order) (Transactor, error) { return nil, errNotCovered }
