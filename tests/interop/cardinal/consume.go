package main

import (
	"flag"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/openrelayxyz/cardinal-streams/v2/delivery"
	"github.com/openrelayxyz/cardinal-types"
)

// How many blocks wait between upstream's assembly and its ordering, which runs beside it.
const waitingMax = 100

// nowhere is the number of a block that no list of upstream's lets into a chain: once more of them
// than may wait are sent, the ordering has done with whatever came before.
const nowhere = math.MinInt64

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
	reorgs   chan map[int64]types.Hash
	taking   sync.WaitGroup
	failed   error
}

func newConsumer(config *delivery.ConsumerConfig) (*consumer, error) {
	number := int64(nowhere)
	config.Whitelist = map[uint64]types.Hash{uint64(number): {}}
	ordering, err := delivery.NewOrderedMessageProcessor(config)
	if err != nil {
		return nil, err
	}
	found := &consumer{
		ordering: ordering,
		updates:  make(chan *delivery.ChainUpdate, waitingMax),
		reorgs:   make(chan map[int64]types.Hash, 1),
	}
	ordering.Subscribe(found.updates)
	ordering.SubscribeReorg(found.reorgs)
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
	isReorg := len(found.Key()) > 0 && delivery.MessageType(found.Key()[0]) == delivery.ReorgType
	if isReorg {
		// It overtakes what waits, or what follows overtakes it, as it happens.
		c.settle()
	}
	if err := c.ordering.ProcessMessage(found); err != nil {
		return err
	}
	if isReorg {
		<-c.reorgs
	}
	return nil
}

// settle waits until all that came was ordered.
func (c *consumer) settle() {
	ignored := &delivery.PendingBatch{Number: nowhere, Hash: types.BytesToHash([]byte("nowhere"))}
	for range waitingMax + 1 {
		c.ordering.ProcessCompleteBatch(ignored)
	}
}

// finish waits until all that came was ordered, and what came of it taken.
func (c *consumer) finish() error {
	c.settle()
	close(c.updates)
	c.taking.Wait()
	return c.failed
}

func (c *consumer) timed() error {
	var messages []*received
	if err := eachReceived(func(found *received) error {
		messages = append(messages, found)
		return nil
	}); err != nil {
		return err
	}
	found := report{Messages: len(messages)}
	c.start(func(each *delivery.ChainUpdate) error {
		found.Blocks += len(each.Added())
		return nil
	})
	start := time.Now()
	for _, each := range messages {
		if err := c.take(each); err != nil {
			return err
		}
	}
	if err := c.finish(); err != nil {
		return err
	}
	return found.tell(time.Since(start))
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
