package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"
)

// history is the notes of all clients, as tests/checker/history.py reads them: a line of JSON for each event.
type history struct {
	lock   sync.Mutex
	file   *os.File
	values atomic.Int64
}

type event struct {
	Type    string `json:"type"`
	Process int    `json:"process"`
	Time    int64  `json:"time"`
	Kind    string `json:"kind,omitempty"`
	Group   string `json:"group,omitempty"`
	Error   string `json:"error,omitempty"`
	Steps   []step `json:"steps,omitempty"`
}

type step []any

type partition struct {
	topic  string
	number int32
}

// send is a value on its way; its offset is nil as long as it is not acknowledged with one.
type send struct {
	to           partition
	value        int64
	offset       *int64
	acknowledged bool
}

func (p partition) key() string { return fmt.Sprintf("%s/%d", p.topic, p.number) }

func (h *history) invoke(process int, kind, group string, planned []*send) {
	h.write(event{Type: "invoke", Process: process, Kind: kind, Group: group, Steps: sendSteps(planned)})
}

func (h *history) commit(process int) { h.write(event{Type: "commit", Process: process}) }

func (h *history) complete(process int, outcome string, steps []step, wrong error) {
	completed := event{Type: outcome, Process: process, Steps: steps}
	if wrong != nil {
		completed.Error = wrong.Error()
	}
	h.write(completed)
}

func (h *history) write(one event) {
	h.lock.Lock()
	defer h.lock.Unlock()
	one.Time = now()
	line, err := json.Marshal(one)
	if err == nil {
		_, err = h.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

// now is by the clock of Python's time.monotonic_ns.
func now() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return at.Nano()
}

func sendSteps(sends []*send) []step {
	var steps []step
	for _, one := range sends {
		steps = append(steps, step{"send", one.to.key(), one.value, one.offset})
	}
	return steps
}

// polled is of one poll; it is nil where that had no records.
func polled(fetches kgo.Fetches) []step {
	var records [][]any
	fetches.EachRecord(func(one *kgo.Record) {
		value, err := strconv.ParseInt(string(one.Value), 10, 64)
		if err != nil {
			panic(err)
		}
		records = append(records, []any{partition{one.Topic, one.Partition}.key(), one.Offset, value})
	})
	if records == nil {
		return nil
	}
	return []step{{"poll", records, now()}}
}

// reset is to an offset in all of them, or to nobody knows where if it is nil.
func reset(partitions []partition, offset *int64) step {
	positions := map[string]*int64{}
	for _, one := range partitions {
		positions[one.key()] = offset
	}
	return step{"reset", positions}
}
