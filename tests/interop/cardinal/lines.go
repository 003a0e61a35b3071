package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"time"

	"github.com/openrelayxyz/cardinal-types"
)

// Above it a number is a string: there are readers of JSON to whom all numbers are floats.
var exactMax = new(big.Int).SetUint64(1<<53 - 1)

// hexBytes are bytes that are hex in JSON.
type hexBytes []byte

func (b hexBytes) MarshalText() ([]byte, error) {
	return []byte(hex.EncodeToString(b)), nil
}

func (b *hexBytes) UnmarshalText(text []byte) error {
	decoded, err := hex.DecodeString(string(text))
	*b = decoded
	return err
}

// hexHash is a block's or a sub-batch's id.
type hexHash types.Hash

func (h hexHash) MarshalText() ([]byte, error) {
	return []byte(hex.EncodeToString(h[:])), nil
}

func (h *hexHash) UnmarshalText(text []byte) error {
	decoded, err := hex.DecodeString(string(text))
	if err == nil && len(decoded) != len(h) {
		err = fmt.Errorf("a hash of %d bytes", len(decoded))
	}
	copy(h[:], decoded)
	return err
}

// integer is a number or a string of digits.
type integer struct{ big.Int }

func newInteger(value *big.Int) *integer {
	found := &integer{}
	found.Set(value)
	return found
}

func (i *integer) MarshalJSON() ([]byte, error) {
	if i.CmpAbs(exactMax) > 0 {
		return json.Marshal(i.String())
	}
	return []byte(i.String()), nil
}

func (i *integer) UnmarshalJSON(text []byte) error {
	if _, ok := i.SetString(string(bytes.Trim(text, `"`)), 10); !ok {
		return fmt.Errorf("no integer: %s", text)
	}
	return nil
}

// A batch is a sub-batch of a block. One whose values and deletes are left out follows by itself.
type batch struct {
	Hash    hexHash             `json:"hash"`
	ID      hexHash             `json:"id"`
	Values  map[string]hexBytes `json:"values"`
	Deletes []string            `json:"deletes"`
}

type block struct {
	Number  *integer            `json:"number"`
	Hash    hexHash             `json:"hash"`
	Parent  hexHash             `json:"parent"`
	Weight  *integer            `json:"weight"`
	Values  map[string]hexBytes `json:"values"`
	Deletes []string            `json:"deletes"`
	Batches map[string]batch    `json:"batches,omitempty"`
}

type message struct {
	Topic string   `json:"topic"`
	Key   hexBytes `json:"key"`
	Value hexBytes `json:"value"`
}

// place is where a chain is.
type place struct {
	Number *integer `json:"number"`
	Hash   hexHash  `json:"hash"`
}

// report is what `-time` says on standard error.
type report struct {
	Messages int     `json:"messages"`
	Blocks   int     `json:"blocks"`
	Seconds  float64 `json:"seconds"`
}

func (r report) tell(took time.Duration) error {
	r.Seconds = took.Seconds()
	return json.NewEncoder(os.Stderr).Encode(r)
}

// eachLine decodes standard input, a value a line.
func eachLine[T any](take func(*T) error) error {
	decoder := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	for {
		found := new(T)
		if err := decoder.Decode(found); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := take(found); err != nil {
			return err
		}
	}
}

// printer writes values to standard output, a line each.
type printer struct {
	buffer  *bufio.Writer
	encoder *json.Encoder
}

func newPrinter() *printer {
	buffer := bufio.NewWriterSize(os.Stdout, 1<<20)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	return &printer{buffer, encoder}
}

// print lets a line out at once: who reads it may wait for it before the next one is sent.
func (p *printer) print(value any) error {
	if err := p.encoder.Encode(value); err != nil {
		return err
	}
	return p.buffer.Flush()
}
