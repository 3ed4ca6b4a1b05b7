package main

import (
	"context"
	"errors"
	"math/rand"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	sendsMax  = 4
	pollTime  = 200 * time.Millisecond
	pause     = 50 * time.Millisecond
	callMax   = 5 * time.Second
	memberMax = 8 * time.Second
)

// setting is what all workers have in common.
type setting struct {
	seeds      []string
	partitions []partition
	topics     []string
	history    *history
	seed       int64
	newest     string
	isOver     atomic.Bool
}

// worker is one process of the history.
type worker struct {
	*setting
	process int
	random  *rand.Rand
}

func (s *setting) worker(process int) *worker {
	return &worker{s, process, rand.New(rand.NewSource(1000*s.seed + int64(process)))}
}

// client is as impatient as those of tests/interop/workload/settings.py.
func (s *setting) client(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(s.common(), options...)...)
	if err != nil {
		panic(err)
	}
	return client
}

func (s *setting) common() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(s.seeds...),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return pause }),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(callMax),
		kgo.ProducerLinger(0),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
}

func (w *worker) plan() []*send {
	var planned []*send
	for range 1 + w.random.Intn(sendsMax) {
		to := w.partitions[w.random.Intn(len(w.partitions))]
		planned = append(planned, &send{to: to, value: w.history.values.Add(1)})
	}
	return planned
}

type producing interface {
	Produce(ctx context.Context, record *kgo.Record, promise func(*kgo.Record, error))
}

// sendAll waits for what comes of each, and returns what went wrong.
func sendAll(client producing, planned []*send) error {
	var waiting sync.WaitGroup
	var lock sync.Mutex
	var wrong error
	for _, one := range planned {
		waiting.Add(1)
		value := []byte(strconv.FormatInt(one.value, 10))
		record := &kgo.Record{Topic: one.to.topic, Partition: one.to.number, Value: value}
		client.Produce(context.Background(), record, func(answered *kgo.Record, err error) {
			defer waiting.Done()
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				wrong = err
				return
			}
			one.acknowledged = true
			if answered.Offset >= 0 {
				one.offset = &answered.Offset
			}
		})
	}
	waiting.Wait()
	return wrong
}

type polling interface {
	PollRecords(ctx context.Context, most int) kgo.Fetches
}

func poll(client polling, most int) ([]step, error) {
	ctx, stop := context.WithTimeout(context.Background(), pollTime)
	defer stop()
	fetches := client.PollRecords(ctx, most)
	var wrong error
	fetches.EachError(func(_ string, _ int32, err error) {
		if !errors.Is(err, context.DeadlineExceeded) {
			wrong = err
		}
	})
	return polled(fetches), wrong
}

// note is of one operation that needs no commit.
func (w *worker) note(kind string, did func() ([]step, error)) {
	w.history.invoke(w.process, kind, "", nil)
	steps, wrong := did()
	outcome := "ok"
	if wrong != nil {
		outcome = "info"
	}
	w.history.complete(w.process, outcome, steps, wrong)
	if wrong != nil {
		time.Sleep(pause)
	}
}

func (w *worker) memberUntil() time.Time {
	return time.Now().Add(memberMax + time.Duration(w.random.Int63n(int64(memberMax))))
}

// moves are the rebalances between one poll and the next: BlockRebalanceOnPoll keeps them out of polls.
type moves struct {
	lock  sync.Mutex
	steps []step
}

func (m *moves) add(_ context.Context, _ *kgo.Client, moved map[string][]int32) {
	var partitions []partition
	for topic, numbers := range moved {
		for _, number := range numbers {
			partitions = append(partitions, partition{topic, number})
		}
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.steps = append(m.steps, reset(partitions, nil))
}

func (m *moves) take() []step {
	m.lock.Lock()
	defer m.lock.Unlock()
	steps := m.steps
	m.steps = nil
	return steps
}

func (w *worker) member(group, protocol string, moved *moves) []kgo.Opt {
	options := []kgo.Opt{
		kgo.ConsumerGroup(group + "-" + protocol),
		kgo.ConsumeTopics(w.topics...),
		kgo.SessionTimeout(3 * time.Second),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.AutoCommitInterval(300 * time.Millisecond),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(moved.add),
		kgo.OnPartitionsRevoked(moved.add),
		kgo.OnPartitionsLost(moved.add),
	}
	if protocol == "consumer" {
		options = append(options, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	return options
}
