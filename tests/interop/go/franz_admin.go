package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
)

// asAdmin runs `work` with an administration client of its own.
func (f *franz) asAdmin(work func(admin *kadm.Client) error) error {
	client, err := f.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	return work(kadm.NewClient(client))
}

func (f *franz) CreateTopic(ctx context.Context, order Order) error {
	configs := map[string]*string{}
	for key, value := range order.Configs {
		configs[key] = &value
	}
	return f.asAdmin(func(admin *kadm.Client) error {
		_, err := admin.CreateTopic(ctx, order.Partitions, 1, configs, order.Topic)
		return err
	})
}

func (f *franz) CreatePartitions(ctx context.Context, order Order) error {
	return f.asAdmin(func(admin *kadm.Client) error {
		made, err := admin.UpdatePartitions(ctx, int(order.Partitions), order.Topic)
		if err != nil {
			return err
		}
		return made.Error()
	})
}

func (f *franz) DescribeTopic(ctx context.Context, order Order) (map[int32]int32, error) {
	leaders := map[int32]int32{}
	err := f.asAdmin(func(admin *kadm.Client) error {
		topics, err := admin.ListTopics(ctx, order.Topic)
		if err != nil {
			return err
		}
		for _, partition := range topics[order.Topic].Partitions {
			leaders[partition.Partition] = partition.Leader
		}
		return topics[order.Topic].Err
	})
	return leaders, err
}

func (f *franz) DescribeConfigs(ctx context.Context, order Order) (map[string]*string, error) {
	configs := map[string]*string{}
	err := f.asAdmin(func(admin *kadm.Client) error {
		found, err := admin.DescribeTopicConfigs(ctx, order.Topic)
		if err != nil {
			return err
		}
		topic, err := found.On(order.Topic, nil)
		if err != nil {
			return err
		}
		for _, config := range topic.Configs {
			configs[config.Key] = config.Value
		}
		return topic.Err
	})
	return configs, err
}

func (f *franz) DescribeCluster(ctx context.Context) (*Cluster, error) {
	var cluster Cluster
	err := f.asAdmin(func(admin *kadm.Client) error {
		found, err := admin.BrokerMetadata(ctx)
		cluster = Cluster{found.Cluster, found.Controller, map[int32]string{}}
		for _, broker := range found.Brokers {
			cluster.Brokers[broker.NodeID] = fmt.Sprintf("%s:%d", broker.Host, broker.Port)
		}
		return err
	})
	return &cluster, err
}

func (f *franz) ListOffsets(ctx context.Context, order Order) (int64, error) {
	var offset int64
	err := f.asAdmin(func(admin *kadm.Client) error {
		found, err := listed(ctx, admin, order)
		if err != nil {
			return err
		}
		partition, _ := found.Lookup(order.Topic, 0)
		offset = partition.Offset
		return partition.Err
	})
	return offset, err
}

func listed(ctx context.Context, admin *kadm.Client, order Order) (kadm.ListedOffsets, error) {
	switch order.Question {
	case "earliest":
		return admin.ListStartOffsets(ctx, order.Topic)
	case "latest":
		return admin.ListEndOffsets(ctx, order.Topic)
	case "max timestamp":
		return admin.ListMaxTimestampOffsets(ctx, order.Topic)
	}
	return admin.ListOffsetsAfterMilli(ctx, order.At, order.Topic)
}

func (f *franz) DeleteTopic(ctx context.Context, order Order) error {
	return f.asAdmin(func(admin *kadm.Client) error {
		_, err := admin.DeleteTopic(ctx, order.Topic)
		return err
	})
}
