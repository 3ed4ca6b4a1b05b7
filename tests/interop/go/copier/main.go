// Command copier copies one topic to another in transactions, over franz-go.
//
//	copier ADDRESS GROUP PROTOCOL TRANSACTIONAL_ID SOURCE SINK
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	recordsMax = 25
	pause      = 30 * time.Millisecond // With the transaction open: there it is killed most often.
	endMax     = 20 * time.Second
)

func main() {
	arguments := os.Args[1:]
	if len(arguments) != 6 || arguments[2] != "classic" {
		fmt.Fprintln(os.Stderr, "usage: copier ADDRESS GROUP classic TRANSACTIONAL_ID SOURCE SINK")
		os.Exit(2)
	}
	if err := copyAll(arguments[0], arguments[1], arguments[3], arguments[4], arguments[5]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func copyAll(address, group, transactionalID, source, sink string) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(address),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.SessionTimeout(3*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.TransactionalID(transactionalID),
		kgo.TransactionTimeout(6*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for {
		fetches := session.PollRecords(context.Background(), recordsMax)
		if fetches.IsClientClosed() {
			return fetches.Err()
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			fmt.Fprintf(os.Stderr, "%s/%d: %v\n", topic, partition, err)
		})
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := copySome(session, fetches, sink); err != nil {
			return err
		}
	}
}

// copySome is one transaction.  One that is aborted is no error: the session goes back to what is committed.
func copySome(session *kgo.GroupTransactSession, fetches kgo.Fetches, sink string) error {
	if err := session.Begin(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), endMax)
	defer cancel()
	promise := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(record *kgo.Record) {
		copied := &kgo.Record{Topic: sink, Partition: record.Partition, Value: record.Value}
		session.Produce(ctx, copied, promise.Promise())
	})
	time.Sleep(pause)
	outcome := kgo.TransactionEndTry(promise.Err() == nil)
	if _, err := session.End(ctx, outcome); err != nil {
		return err
	}
	return nil
}
