package main

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/openrelayxyz/cardinal-streams/v2/delivery"
	"github.com/openrelayxyz/cardinal-types"
)

// produced is a line of what goes in: a block, or one of the other three.
type produced struct {
	block
	Batch     *batch `json:"batch"`
	Reorg     *place `json:"reorg"`
	ReorgDone bool   `json:"reorg_done"`
}

// maker turns lines into messages, as upstream's producer does.
type maker struct {
	producer *delivery.Producer
	// Where Reorg and ReorgComplete go.
	defaultTopic string
	// Of a reorganisation that is not done yet.
	reorg *place
	emit  func(topic string, messages []delivery.Message) error
}

// produce reads blocks, and writes the messages that upstream makes of them. With -time all blocks
// are read before the first is taken, and nothing is written but the report.
func produce(flags *flag.FlagSet, arguments []string) error {
	isTimed := flags.Bool("time", false, "report how long it takes, and write no messages")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() < 1 {
		return fmt.Errorf("which topic is the default?")
	}
	schema := make(map[string]string)
	for _, each := range flags.Args()[1:] {
		at := strings.LastIndex(each, "=")
		if at < 0 {
			return fmt.Errorf("no pattern and topic: %s", each)
		}
		schema[each[:at]] = each[at+1:]
	}
	producer, err := delivery.NewProducer(flags.Arg(0), schema)
	if err != nil {
		return err
	}
	making := &maker{producer: producer, defaultTopic: flags.Arg(0)}
	if *isTimed {
		return making.timed()
	}
	out := newPrinter()
	making.emit = func(topic string, messages []delivery.Message) error {
		for _, each := range messages {
			if err := out.print(message{topic, each.Key(), each.Value()}); err != nil {
				return err
			}
		}
		return nil
	}
	return eachLine(making.take)
}

func (m *maker) timed() error {
	var lines []*produced
	if err := eachLine(func(line *produced) error {
		lines = append(lines, line)
		return nil
	}); err != nil {
		return err
	}
	var found report
	m.emit = func(_ string, messages []delivery.Message) error {
		found.Messages += len(messages)
		return nil
	}
	start := time.Now()
	for _, line := range lines {
		if err := m.take(line); err != nil {
			return err
		}
		if line.Number != nil {
			found.Blocks++
		}
	}
	return found.tell(time.Since(start))
}

func (m *maker) take(line *produced) error {
	switch {
	case line.Batch != nil:
		return m.sendBatch(line.Batch)
	case line.Reorg != nil:
		m.reorg = line.Reorg
		begin := m.producer.Reorg(line.Reorg.Number.Int64(), types.Hash(line.Reorg.Hash))
		return m.emit(m.defaultTopic, []delivery.Message{begin})
	case line.ReorgDone:
		if m.reorg == nil {
			return fmt.Errorf("no reorganisation was begun")
		}
		end := m.producer.ReorgDone(m.reorg.Number.Int64(), types.Hash(m.reorg.Hash))
		m.reorg = nil
		return m.emit(m.defaultTopic, []delivery.Message{end})
	case line.Number == nil || line.Weight == nil:
		return fmt.Errorf("a block without number or weight")
	default:
		return m.addBlock(&line.block)
	}
}

func (m *maker) addBlock(found *block) error {
	deletes := make(map[string]struct{}, len(found.Deletes))
	for _, key := range found.Deletes {
		deletes[key] = struct{}{}
	}
	batches := make(map[string]types.Hash, len(found.Batches))
	for name, each := range found.Batches {
		batches[name] = types.Hash(each.ID)
	}
	made, err := m.producer.AddBlock(
		found.Number.Int64(), types.Hash(found.Hash), types.Hash(found.Parent), &found.Weight.Int,
		plain(found.Values), deletes, batches,
	)
	if err != nil {
		return err
	}
	if err := m.emitAll(made); err != nil {
		return err
	}
	for _, each := range found.Batches {
		if each.Values == nil && each.Deletes == nil {
			continue
		}
		if err := m.sendBatch(&each); err != nil {
			return err
		}
	}
	return nil
}

func (m *maker) sendBatch(found *batch) error {
	made, err := m.producer.SendBatch(types.Hash(found.ID), found.Deletes, plain(found.Values))
	if err != nil {
		return err
	}
	return m.emitAll(made)
}

func (m *maker) emitAll(made map[string][]delivery.Message) error {
	for topic, messages := range made {
		if err := m.emit(topic, messages); err != nil {
			return err
		}
	}
	return nil
}

func plain(values map[string]hexBytes) map[string][]byte {
	found := make(map[string][]byte, len(values))
	for key, value := range values {
		found[key] = value
	}
	return found
}
