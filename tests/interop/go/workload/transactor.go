package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	transactionRecordsMax = 20
	abortedShare          = 0.15
)

var onPurpose = errors.New("on purpose")

func (w *worker) transactional() []kgo.Opt {
	name := fmt.Sprintf("go-transactor-%d", w.process)
	return []kgo.Opt{kgo.TransactionalID(name), kgo.TransactionTimeout(6 * time.Second)}
}

// transact reads all keys and commits no offsets.
func (w *worker) transact() {
	for !w.isOver.Load() {
		producer := w.client(w.transactional()...)
		consumer := w.assigned(0)
		w.note("assign", func() ([]step, error) {
			var zero int64
			return []step{reset(w.partitions, &zero)}, nil
		})
		for isKnown := true; isKnown && !w.isOver.Load(); {
			isKnown = w.transaction("", func(planned []*send) ([]step, string, error) {
				if err := producer.BeginTransaction(); err != nil {
					return nil, "info", err
				}
				steps, wrong := poll(consumer, transactionRecordsMax)
				if err := sendAll(producer, planned); err != nil {
					wrong = err
				}
				outcome, wrong := w.end(wrong, func(commit kgo.TransactionEndTry) (bool, error) {
					return bool(commit), producer.EndTransaction(context.Background(), commit)
				})
				return steps, outcome, wrong
			})
		}
		producer.Close()
		consumer.Close()
	}
}

// transactAsMember commits the offsets of its group; after a while it leaves, and comes back.
func (w *worker) transactAsMember(protocol string) {
	group := "transactors"
	for !w.isOver.Load() {
		moved := &moves{}
		options := append(w.common(), append(w.member(group, protocol, moved), w.transactional()...)...)
		session, err := kgo.NewGroupTransactSession(options...)
		if err != nil {
			panic(err)
		}
		w.note("subscribe", func() ([]step, error) { return []step{reset(w.partitions, nil)}, nil })
		until := w.memberUntil()
		for isKnown := true; isKnown && !w.isOver.Load() && time.Now().Before(until); {
			isKnown = w.transaction(group+"-"+protocol, func(planned []*send) ([]step, string, error) {
				if err := session.Begin(); err != nil {
					return nil, "info", err
				}
				steps, wrong := poll(session, transactionRecordsMax)
				steps = append(moved.take(), steps...)
				if err := sendAll(session, planned); err != nil {
					wrong = err
				}
				session.AllowRebalance()
				outcome, wrong := w.end(wrong, func(commit kgo.TransactionEndTry) (bool, error) {
					return session.End(context.Background(), commit)
				})
				if outcome != "ok" { // The session goes back to what is committed.
					steps = append(steps, reset(w.partitions, nil))
				}
				return steps, outcome, wrong
			})
		}
		session.CloseAllowingRebalance()
	}
}

// transaction notes one, and returns whether its producer can go on.
func (w *worker) transaction(group string, did func([]*send) ([]step, string, error)) bool {
	planned := w.plan()
	w.history.invoke(w.process, "txn", group, planned)
	steps, outcome, wrong := did(planned)
	w.history.complete(w.process, outcome, append(steps, sendSteps(planned)...), wrong)
	if outcome == "info" {
		time.Sleep(pause)
	}
	return outcome != "info"
}

// end commits what went well, and aborts the rest and some more; it returns the outcome.
func (w *worker) end(wrong error, try func(kgo.TransactionEndTry) (bool, error)) (string, error) {
	if wrong == nil && w.random.Float64() < abortedShare {
		wrong = onPurpose
	}
	commit := kgo.TransactionEndTry(wrong == nil)
	if commit {
		w.history.commit(w.process)
	}
	committed, err := try(commit)
	switch {
	case err != nil:
		return "info", errors.Join(wrong, err)
	case committed:
		return "ok", nil
	default:
		return "fail", wrong
	}
}
