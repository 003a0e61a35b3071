package main

import (
	"flag"
	"fmt"
	"math/big"
	"regexp"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/openrelayxyz/cardinal-streams/v2/delivery"
	"github.com/openrelayxyz/cardinal-types"
)

// Upstream's ordering says that it has done all there was by taking the word to end, for which it
// is given a second each time. So often it is asked before it counts as stuck.
const patience = 120

// How many updates may wait to be taken: as many as upstream's own consumers let wait.
const updatesWaiting = 100

// update is what has become of the chain: both sides oldest first.
type update struct {
	Added   []block `json:"added"`
	Removed []place `json:"removed"`
}

// received is a message as upstream's consumer takes it from a broker.
type received struct {
	message
	offset int64
	at     time.Time
}

func (r *received) Key() []byte     { return r.message.Key }
func (r *received) Value() []byte   { return r.message.Value }
func (r *received) Source() string  { return r.Topic }
func (r *received) Offset() int64   { return r.offset }
func (r *received) Time() time.Time { return r.at }

// eachReceived numbers the messages of standard input.
func eachReceived(take func(*received) error) error {
	offset := int64(0)
	return eachLine(func(found *message) error {
		offset++
		return take(&received{*found, offset, time.Now()})
	})
}

// consume reads messages, and writes the updates that upstream's assembly and ordering make of them.
// With -time all messages are read before the first is taken, and nothing is written but the report.
func consume(flags *flag.FlagSet, arguments []string) error {
	isTimed := flags.Bool("time", false, "report how long it takes, and write no updates")
	var tracked []*regexp.Regexp
	flags.Func("track", "which keys and prefixes count; may be given again", func(text string) error {
		pattern, err := regexp.Compile(text)
		tracked = append(tracked, pattern)
		return err
	})
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if tracked == nil {
		tracked = []*regexp.Regexp{regexp.MustCompile("")}
	}
	config, err := configured(flags.Args())
	if err != nil {
		return err
	}
	config.TrackedPrefixes = tracked
	consumer, err := newConsumer(config)
	if err != nil {
		return err
	}
	if *isTimed {
		return consumer.timed()
	}
	out := newPrinter()
	consumer.start(func(found *delivery.ChainUpdate) error { return out.print(shown(found)) })
	if err := eachReceived(consumer.take); err != nil {
		return err
	}
	return consumer.finish()
}

func configured(arguments []string) (*delivery.ConsumerConfig, error) {
	if len(arguments) != 4 {
		return nil, fmt.Errorf("number, hash, weight and threshold have to be given")
	}
	number, err := strconv.ParseInt(arguments[0], 10, 64)
	if err != nil {
		return nil, err
	}
	var hash hexHash
	if err := hash.UnmarshalText([]byte(arguments[1])); err != nil {
		return nil, err
	}
	weight, ok := new(big.Int).SetString(arguments[2], 10)
	if !ok {
		return nil, fmt.Errorf("no weight: %s", arguments[2])
	}
	threshold, err := strconv.ParseInt(arguments[3], 10, 64)
	if err != nil {
		return nil, err
	}
	return &delivery.ConsumerConfig{
		LastEmittedNum: number,
		LastHash:       types.Hash(hash),
		LastWeight:     weight,
		ReorgThreshold: threshold,
	}, nil
}

// consumer is upstream's assembly and ordering, and somebody who takes their updates.
type consumer struct {
	ordering *delivery.OrderedMessageProcessor
	updates  chan *delivery.ChainUpdate
	taking   sync.WaitGroup
	failed   error
}

func newConsumer(config *delivery.ConsumerConfig) (*consumer, error) {
	ordering, err := delivery.NewOrderedMessageProcessor(config)
	if err != nil {
		return nil, err
	}
	found := &consumer{ordering: ordering, updates: make(chan *delivery.ChainUpdate, updatesWaiting)}
	ordering.Subscribe(found.updates)
	return found, nil
}

func (c *consumer) start(take func(*delivery.ChainUpdate) error) {
	c.taking.Add(1)
	go func() {
		defer c.taking.Done()
		for each := range c.updates {
			// The rest is taken too, since upstream waits for it.
			if c.failed == nil {
				c.failed = take(each)
			}
		}
	}()
}

func (c *consumer) take(found *received) error {
	return c.ordering.ProcessMessage(found)
}

// finish waits until all that came was ordered, and what came of it taken.
func (c *consumer) finish() error {
	for range patience {
		start := time.Now()
		c.ordering.Close()
		if time.Since(start) < time.Second {
			close(c.updates)
			c.taking.Wait()
			return c.failed
		}
	}
	return fmt.Errorf("upstream's ordering has not ended")
}

func (c *consumer) timed() error {
	var messages []*received
	if err := eachReceived(func(found *received) error {
		messages = append(messages, found)
		return nil
	}); err != nil {
		return err
	}
	var found report
	var last time.Time
	c.start(func(each *delivery.ChainUpdate) error {
		found.Blocks += len(each.Added())
		last = time.Now()
		return nil
	})
	start := time.Now()
	for _, each := range messages {
		if err := c.take(each); err != nil {
			return err
		}
	}
	// The ordering runs beside it and may end later; that it looks for the end is not its work.
	end := time.Now()
	if err := c.finish(); err != nil {
		return err
	}
	if last.After(end) {
		end = last
	}
	found.Messages = len(messages)
	return found.tell(end.Sub(start))
}

func shown(found *delivery.ChainUpdate) update {
	result := update{Added: []block{}, Removed: []place{}}
	for _, each := range found.Added() {
		result.Added = append(result.Added, shownBlock(each))
	}
	for _, each := range found.Removed() {
		result.Removed = append(result.Removed, place{newInteger(big.NewInt(each.Number)), hexHash(each.Hash)})
	}
	return result
}

func shownBlock(found *delivery.PendingBatch) block {
	values := make(map[string]hexBytes, len(found.Values))
	for key, value := range found.Values {
		values[key] = value
	}
	deletes := make([]string, 0, len(found.Deletes))
	for key := range found.Deletes {
		deletes = append(deletes, key)
	}
	sort.Strings(deletes)
	return block{
		Number:  newInteger(big.NewInt(found.Number)),
		Hash:    hexHash(found.Hash),
		Parent:  hexHash(found.ParentHash),
		Weight:  newInteger(found.Weight),
		Values:  values,
		Deletes: deletes,
	}
}
