// Command workload is the workload of tests/interop/workload over franz-go: clients that append unique values, poll
// them, and take notes.
//
//	workload ADDRESS HISTORY SECONDS SEED NAME:PARTITIONS...
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const closeMax = 90 * time.Second

func main() {
	seconds := must(strconv.ParseFloat(os.Args[3], 64))
	those := &setting{
		seeds:   strings.Split(os.Args[1], ","),
		history: &history{file: must(os.Create(os.Args[2]))},
		seed:    must(strconv.ParseInt(os.Args[4], 10, 64)),
	}
	for _, told := range os.Args[5:] {
		name, count, _ := strings.Cut(told, ":")
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
	time.Sleep(time.Duration(seconds * float64(time.Second)))
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
	func(w *worker) { w.readAsMember("consumer") },
	(*worker).transact,
	(*worker).transact,
	func(w *worker) { w.transactAsMember("classic") },
	func(w *worker) { w.transactAsMember("classic") },
	func(w *worker) { w.transactAsMember("consumer") },
	func(w *worker) { w.transactAsMember("consumer") },
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return value
}
