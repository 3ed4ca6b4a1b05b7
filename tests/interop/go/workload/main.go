// Command workload is the workload of tests/interop/workload over franz-go: clients that append unique values, poll
// them, and take notes.
//
//	workload ADDRESS HISTORY SEED NEWEST NAME:PARTITIONS...
//
// NEWEST is the newest protocol for groups that the brokers have.  It goes on until standard input ends.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const closeMax = 90 * time.Second

func main() {
	those := &setting{
		seeds:   strings.Split(os.Args[1], ","),
		history: &history{file: must(os.Create(os.Args[2]))},
		seed:    must(strconv.ParseInt(os.Args[3], 10, 64)),
		newest:  os.Args[4],
	}
	for _, argument := range os.Args[5:] {
		name, count, _ := strings.Cut(argument, ":")
		those.topics = append(those.topics, name)
		for number := range must(strconv.Atoi(count)) {
			those.partitions = append(those.partitions, partition{name, int32(number)})
		}
	}
	var working sync.WaitGroup
	for process, work := range workers {
		working.Add(1)
		go func() {
			defer working.Done()
			work(those.worker(process))
		}()
	}
	must(io.Copy(io.Discard, os.Stdin))
	those.isOver.Store(true)
	ended := make(chan struct{})
	go func() {
		working.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeMax):
		panic("a worker hangs") // With GOTRACEBACK=all its stack is told.
	}
}

var workers = []func(*worker){
	(*worker).sendOn,
	(*worker).sendOn,
	(*worker).read,
	func(w *worker) { w.readAsMember("classic") },
	func(w *worker) { w.readAsMember("classic") },
	func(w *worker) { w.readAsMember(w.newest) },
	(*worker).transact,
	(*worker).transact,
	func(w *worker) { w.transactAsMember("classic") },
	func(w *worker) { w.transactAsMember("classic") },
	func(w *worker) { w.transactAsMember(w.newest) },
	func(w *worker) { w.transactAsMember(w.newest) },
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return value
}
