package main

import (
	"fmt"
	"sync"
)

// Place is a record that a member has read, and where it was.
type Place struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Value     []byte `json:"value"`
}

// Committed is what a group has committed for a partition.
type Committed struct {
	Offset   int64  `json:"offset"`
	Metadata string `json:"metadata"`
}

// Member reads from the beginning unless its group has read before, and commits what it has read at once.
type Member interface {
	// Places are all that it has read, but for the first so many.
	Places(known int) ([]Place, error)
	Leave() error
}

// places are filled by a member's own goroutines.
type places struct {
	lock    sync.Mutex
	all     []Place
	failure error
}

func (p *places) add(partition int32, offset int64, value []byte) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.all = append(p.all, Place{partition, offset, value})
}

func (p *places) fail(err error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.failure = err
}

func (p *places) Places(known int) ([]Place, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	return append([]Place{}, p.all[known:]...), p.failure
}

func (d *desk) membership(order Order) (any, error) {
	if order.Do == "join" {
		member, err := d.client.Join(order)
		if err == nil {
			d.members[order.Name] = member
		}
		return nil, err
	}
	member, ok := d.members[order.Name]
	switch {
	case !ok:
		return nil, fmt.Errorf("no such member: %q", order.Name)
	case order.Do == "places":
		return member.Places(order.Count)
	}
	delete(d.members, order.Name)
	if err := member.Leave(); err != nil {
		return nil, err
	}
	return member.Places(order.Count)
}
