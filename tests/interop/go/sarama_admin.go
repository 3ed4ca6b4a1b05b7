package main

import (
	"context"

	"github.com/IBM/sarama"
)

// asAdmin runs `work` with an administration client of its own.
func (s *ibm) asAdmin(work func(admin sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin([]string{s.address}, s.config())
	if err != nil {
		return err
	}
	defer admin.Close()
	return work(admin)
}

func (s *ibm) CreateTopic(_ context.Context, order Order) error {
	detail := &sarama.TopicDetail{
		NumPartitions:     order.Partitions,
		ReplicationFactor: 1,
		ConfigEntries:     map[string]*string{},
	}
	for key, value := range order.Configs {
		detail.ConfigEntries[key] = &value
	}
	return s.asAdmin(func(admin sarama.ClusterAdmin) error { return admin.CreateTopic(order.Topic, detail, false) })
}

func (s *ibm) CreatePartitions(_ context.Context, order Order) error {
	return s.asAdmin(func(admin sarama.ClusterAdmin) error {
		return admin.CreatePartitions(order.Topic, order.Partitions, nil, false)
	})
}

func (s *ibm) DescribeTopic(_ context.Context, order Order) (map[int32]int32, error) {
	leaders := map[int32]int32{}
	err := s.asAdmin(func(admin sarama.ClusterAdmin) error {
		topics, err := admin.DescribeTopics([]string{order.Topic})
		if err != nil {
			return err
		}
		if topics[0].Err != sarama.ErrNoError {
			return topics[0].Err
		}
		for _, partition := range topics[0].Partitions {
			leaders[partition.ID] = partition.Leader
		}
		return nil
	})
	return leaders, err
}

// DescribeConfigs tells an empty value where there is none: sarama does not tell them apart.
func (s *ibm) DescribeConfigs(_ context.Context, order Order) (map[string]*string, error) {
	configs := map[string]*string{}
	err := s.asAdmin(func(admin sarama.ClusterAdmin) error {
		entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: order.Topic})
		for _, entry := range entries {
			configs[entry.Name] = &entry.Value
		}
		return err
	})
	return configs, err
}

// DescribeCluster asks the broker itself, since ClusterAdmin leaves the cluster's id out.
func (s *ibm) DescribeCluster(_ context.Context) (*Cluster, error) {
	cluster := Cluster{Brokers: map[int32]string{}}
	err := s.asAdmin(func(admin sarama.ClusterAdmin) error {
		broker, err := admin.Controller()
		if err != nil {
			return err
		}
		found, err := broker.GetMetadata(sarama.NewMetadataRequest(s.config().Version, nil))
		if err != nil {
			return err
		}
		cluster.ID, cluster.Controller = *found.ClusterID, found.ControllerID
		for _, broker := range found.Brokers {
			cluster.Brokers[broker.ID()] = broker.Addr()
		}
		return nil
	})
	return &cluster, err
}

func (s *ibm) ListOffsets(_ context.Context, order Order) (int64, error) {
	client, err := sarama.NewClient([]string{s.address}, s.config())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	switch order.Question {
	case "earliest":
		return client.GetOffset(order.Topic, 0, sarama.OffsetOldest)
	case "latest":
		return client.GetOffset(order.Topic, 0, sarama.OffsetNewest)
	case "max timestamp":
		return 0, errNotCovered
	}
	return client.GetOffset(order.Topic, 0, order.At)
}

func (s *ibm) DeleteTopic(_ context.Context, order Order) error {
	return s.asAdmin(func(admin sarama.ClusterAdmin) error { return admin.DeleteTopic(order.Topic) })
}
