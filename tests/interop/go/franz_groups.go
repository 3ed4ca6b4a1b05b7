package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type franzMember struct {
	places
	client *kgo.Client
	stop   context.CancelFunc
	ended  chan struct{}
}

// Whoever has the partitions now reads again what is not committed.
var franzMoved = []error{kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.StaleMemberEpoch}

func (f *franz) Join(order Order) (Member, error) {
	options := []kgo.Opt{
		kgo.ClientID(order.Name),
		kgo.ConsumerGroup(order.Group),
		kgo.ConsumeTopics(order.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(milliseconds(order.FetchWaitMs)),
		kgo.HeartbeatInterval(milliseconds(order.HeartbeatMs)),
		kgo.SessionTimeout(milliseconds(order.SessionMs)),
		kgo.DisableAutoCommit(),
	}
	if order.Instance != "" {
		options = append(options, kgo.InstanceID(order.Instance))
	}
	switch order.Way {
	case "range":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	case "consumer":
		options = append(options, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	} // Cooperative-sticky is how it comes.
	client, err := f.connect(options...)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	member := &franzMember{client: client, stop: stop, ended: make(chan struct{})}
	go member.read(ctx, withMetadata(order.Metadata))
	return member, nil
}

func (m *franzMember) read(ctx, committing context.Context) {
	defer close(m.ended)
	for ctx.Err() == nil {
		fetches := m.client.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil {
				m.fail(err)
			}
		})
		if fetches.NumRecords() == 0 {
			continue
		}
		fetches.EachRecord(func(one *kgo.Record) { m.add(one.Partition, one.Offset, one.Value) })
		if err := m.client.CommitUncommittedOffsets(committing); err != nil && !isOneOf(err, franzMoved) {
			m.fail(err)
		}
	}
}

// withMetadata goes into the requests of the library: its own calls have no place for it.
func withMetadata(metadata string) context.Context {
	return kgo.PreCommitFnContext(context.Background(), func(request *kmsg.OffsetCommitRequest) error {
		for _, topic := range request.Topics {
			for index := range topic.Partitions {
				topic.Partitions[index].Metadata = &metadata
			}
		}
		return nil
	})
}

func (m *franzMember) Leave() error {
	m.stop()
	<-m.ended
	m.client.Close()
	return nil
}

func (f *franz) Committed(ctx context.Context, order Order) (map[int32]Committed, error) {
	found := map[int32]Committed{}
	err := f.asAdmin(func(admin *kadm.Client) error {
		responses, err := admin.FetchOffsets(ctx, order.Group)
		if err != nil {
			return err
		}
		responses.Each(func(one kadm.OffsetResponse) {
			if one.Topic == order.Topic {
				found[one.Partition] = Committed{one.At, one.Metadata}
			}
		})
		return responses.Error()
	})
	return found, err
}

func isOneOf(err error, those []error) bool {
	for _, one := range those {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

func milliseconds(count int) time.Duration { return time.Duration(count) * time.Millisecond }
