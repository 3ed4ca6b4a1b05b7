package main

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const recordsMax = 50

// sendOn is an idempotent producer.
func (w *worker) sendOn() {
	client := w.client()
	defer client.Close()
	for !w.isOver.Load() {
		planned := w.plan()
		w.history.invoke(w.process, "send", "", planned)
		wrong := sendAll(client, planned)
		outcome := "ok"
		for _, one := range planned {
			if !one.acknowledged {
				outcome = "info"
			}
		}
		w.history.complete(w.process, outcome, sendSteps(planned), wrong)
	}
}

// read is from the beginning, and after a while from there again, or from elsewhere.
func (w *worker) read() {
	for !w.isOver.Load() {
		var offset int64
		if w.random.Intn(2) == 0 {
			offset = w.random.Int63n(200)
		}
		client := w.assigned(offset)
		w.note("assign", func() ([]step, error) {
			if offset == 0 {
				return []step{reset(w.partitions, &offset)}, nil
			}
			return []step{reset(w.partitions, nil)}, nil // Beyond the end, it goes back to the beginning by itself.
		})
		for until := time.Now().Add(memberMax / 2); !w.isOver.Load() && time.Now().Before(until); {
			w.note("poll", func() ([]step, error) { return poll(client, recordsMax) })
		}
		client.Close()
	}
}

func (w *worker) assigned(offset int64) *kgo.Client {
	places := map[string]map[int32]kgo.Offset{}
	for _, one := range w.partitions {
		if places[one.topic] == nil {
			places[one.topic] = map[int32]kgo.Offset{}
		}
		places[one.topic][one.number] = kgo.NewOffset().At(offset)
	}
	return w.client(kgo.ConsumePartitions(places))
}

// readAsMember commits what it has polled; after a while it leaves, and comes back.
func (w *worker) readAsMember(protocol string) {
	for !w.isOver.Load() {
		moved := &moves{}
		client := w.client(w.member("readers", protocol, moved)...)
		w.note("subscribe", func() ([]step, error) { return []step{reset(w.partitions, nil)}, nil })
		for until := w.memberUntil(); !w.isOver.Load() && time.Now().Before(until); {
			w.note("poll", func() ([]step, error) {
				steps, wrong := poll(client, recordsMax)
				return append(moved.take(), steps...), wrong
			})
			client.AllowRebalance()
		}
		client.CloseAllowingRebalance()
	}
}
