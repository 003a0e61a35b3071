package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/p2p/enode"
	"github.com/ethereum/go-ethereum/swarm/network"
	"github.com/ethereum/go-ethereum/swarm/network/stream"
	"github.com/ethereum/go-ethereum/swarm/storage"
	"golang.org/x/crypto/sha3"
)

const (
	chunkBytes = 4096
	// As many as upstream has for the chunks of a file.
	putters   = 150
	readBytes = 128 * chunkBytes
	pollEach  = 3 * time.Millisecond
)

// A command takes all of its arguments before it does anything: with one of them wrong it is not run.
var commands = map[string]func(*node, *arguments) (answer, error){
	"put":         put,
	"upload":      upload,
	"get":         get,
	"chunk":       chunk,
	"connect":     connect,
	"disconnect":  disconnect,
	"peers":       peers,
	"subscribe":   subscribe,
	"request":     request,
	"unsubscribe": unsubscribe,
	"quit":        quit,
	"sync":        syncBins,
	"count":       count,
	"list":        list,
	"has":         has,
	"wait":        wait,
	"traffic":     traffic,
	"ended":       endings,
}

// arguments are taken off one by one; the first that is wrong is remembered.
type arguments struct {
	words []string
	err   error
}

func (a *arguments) text() string {
	if len(a.words) == 0 {
		a.fail(errors.New("an argument is missing"))
		return ""
	}
	found := a.words[0]
	a.words = a.words[1:]
	return found
}

func (a *arguments) number() uint64 {
	found, err := strconv.ParseUint(a.text(), 10, 64)
	a.fail(err)
	return found
}

func (a *arguments) address() storage.Address {
	found, err := hex.DecodeString(a.text())
	if err == nil && len(found) != storage.AddressLength {
		err = fmt.Errorf("an address of %d bytes", len(found))
	}
	a.fail(err)
	return found
}

func (a *arguments) seconds() time.Duration {
	found, err := strconv.ParseFloat(a.text(), 64)
	a.fail(err)
	return time.Duration(found * float64(time.Second))
}

func (a *arguments) stream() stream.Stream {
	name, key := a.text(), a.text()
	live, err := strconv.ParseBool(a.text())
	a.fail(err)
	return stream.NewStream(name, key, live)
}

// span is a priority, and a range behind it or none.
func (a *arguments) span() (priority uint8, span *stream.Range) {
	priority = uint8(a.number())
	if len(a.words) > 0 {
		span = stream.NewRange(a.number(), a.number())
	}
	return priority, span
}

func (a *arguments) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// end says whether all was right, and nothing is left.
func (a *arguments) end() error {
	if len(a.words) > 0 {
		a.fail(fmt.Errorf("%d arguments too many", len(a.words)))
	}
	return a.err
}

// madeUp is a leaf whose payload is SHAKE-128 of its seed and number.
func madeUp(seed string, number uint64) []byte {
	data := make([]byte, 8+chunkBytes)
	binary.LittleEndian.PutUint64(data, chunkBytes)
	sha3.ShakeSum128(data[8:], []byte(fmt.Sprintf("%s/%d", seed, number)))
	return data
}

func put(n *node, a *arguments) (answer, error) {
	total, seed := a.number(), a.text()
	if err := a.end(); err != nil {
		return nil, err
	}
	made := make([][]byte, total)
	for i := range made {
		made[i] = madeUp(seed, uint64(i))
	}
	addresses, errs := make([]string, total), make([]error, total)
	var group sync.WaitGroup
	free := make(chan struct{}, putters)
	hashers := storage.MakeHashFunc(storage.DefaultHash)
	begin := time.Now()
	for i := range made {
		free <- struct{}{}
		group.Add(1)
		go func(i int) {
			defer group.Done()
			hasher := hashers()
			hasher.ResetWithLength(made[i][:8])
			hasher.Write(made[i][8:])
			address := hasher.Sum(nil)
			addresses[i] = hex.EncodeToString(address)
			errs[i] = n.store.Put(context.Background(), storage.NewChunk(address, made[i]))
			<-free
		}(i)
	}
	group.Wait()
	took := time.Since(begin)
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return answer{"addresses": addresses, "seconds": took.Seconds()}, nil
}

func upload(n *node, a *arguments) (answer, error) {
	path := a.text()
	if err := a.end(); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	begin, ctx := time.Now(), context.Background()
	hash, stored, err := n.files.Store(ctx, file, info.Size(), false)
	if err == nil {
		err = stored(ctx)
	}
	return answer{"hash": hash.Hex(), "bytes": info.Size(), "seconds": time.Since(begin).Seconds()}, err
}

func get(n *node, a *arguments) (answer, error) {
	hash, path, timeout := a.address(), a.text(), a.seconds()
	if err := a.end(); err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	begin := time.Now()
	reader, _ := n.files.Retrieve(ctx, hash)
	size, err := reader.Size(ctx, nil)
	if err != nil {
		return nil, err
	}
	written, err := io.CopyBuffer(file, struct{ io.Reader }{io.LimitReader(reader, size)}, make([]byte, readBytes))
	return answer{"bytes": written, "seconds": time.Since(begin).Seconds()}, err
}

func chunk(n *node, a *arguments) (answer, error) {
	address, timeout := a.address(), a.seconds()
	if err := a.end(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	begin := time.Now()
	found, err := n.store.Get(ctx, address)
	if err != nil {
		return nil, err
	}
	return answer{"chunk": hex.EncodeToString(found.Data()), "seconds": time.Since(begin).Seconds()}, nil
}

func connect(n *node, a *arguments) (answer, error) {
	at, err := enode.ParseV4(a.text())
	a.fail(err)
	if err := a.end(); err != nil {
		return nil, err
	}
	n.server.AddPeer(at)
	return answer{"overlay": hex.EncodeToString(crypto.Keccak256(crypto.FromECDSAPub(at.Pubkey())))}, nil
}

func disconnect(n *node, a *arguments) (answer, error) {
	p, err := n.peer(a.text())
	if a.fail(err); a.end() != nil {
		return nil, a.err
	}
	n.server.RemovePeer(p.Node())
	return answer{}, nil
}

func peers(n *node, a *arguments) (answer, error) {
	found := []answer{}
	n.kad.EachConn(nil, 256, func(p *network.Peer, proximity int) bool {
		capabilities := []string{}
		for _, each := range p.Caps() {
			capabilities = append(capabilities, each.String())
		}
		found = append(found, answer{
			"overlay": hex.EncodeToString(p.Over()), "underlay": string(p.Under()), "light": p.LightNode,
			"proximity": proximity, "name": p.Name(), "capabilities": capabilities,
		})
		return true
	})
	return answer{"peers": found, "depth": n.kad.NeighbourhoodDepth()}, a.end()
}

func subscribe(n *node, a *arguments) (answer, error) {
	p, err := n.peer(a.text())
	asked := a.stream()
	priority, span := a.span()
	if a.fail(err); a.end() != nil {
		return nil, a.err
	}
	return answer{}, n.registry.Subscribe(p.ID(), asked, span, priority)
}

func request(n *node, a *arguments) (answer, error) {
	p, err := n.peer(a.text())
	asked := a.stream()
	priority, span := a.span()
	if a.fail(err); a.end() != nil {
		return nil, a.err
	}
	return answer{}, n.registry.RequestSubscription(p.ID(), asked, span, priority)
}

func unsubscribe(n *node, a *arguments) (answer, error) {
	p, err := n.peer(a.text())
	asked := a.stream()
	if a.fail(err); a.end() != nil {
		return nil, a.err
	}
	return answer{}, n.registry.Unsubscribe(p.ID(), asked)
}

func quit(n *node, a *arguments) (answer, error) {
	p, err := n.peer(a.text())
	asked := a.stream()
	if a.fail(err); a.end() != nil {
		return nil, a.err
	}
	return answer{}, n.registry.Quit(p.ID(), asked)
}

// syncBins has all bins synced, live and history: "from" the peer, or "to" it by asking that it subscribes.
func syncBins(n *node, a *arguments) (answer, error) {
	p, err := n.peer(a.text())
	ask, ok := map[string]func(enode.ID, stream.Stream, *stream.Range, uint8) error{
		"from": n.registry.Subscribe, "to": n.registry.RequestSubscription,
	}[a.text()]
	if !ok {
		a.fail(errors.New(`neither "from" nor "to"`))
	}
	if a.fail(err); a.end() != nil {
		return nil, a.err
	}
	for bin := uint8(0); bin <= storage.MaxPO; bin++ {
		asked := stream.NewStream("SYNC", stream.FormatSyncBinKey(bin), true)
		if err := ask(p.ID(), asked, stream.NewRange(0, 0), stream.High); err != nil {
			return nil, err
		}
	}
	return answer{}, nil
}

func (n *node) eachHeld(take func(bin uint8, index uint64, address storage.Address)) error {
	for bin := uint8(0); bin <= storage.MaxPO; bin++ {
		err := n.store.Iterator(0, math.MaxUint64, bin, func(address storage.Address, index uint64) bool {
			take(bin, index, address)
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *node) count() (found uint64, err error) {
	err = n.eachHeld(func(uint8, uint64, storage.Address) { found++ })
	return found, err
}

func count(n *node, a *arguments) (answer, error) {
	found, err := n.count()
	a.fail(err)
	return answer{"chunks": found}, a.end()
}

// list has the chunks in the order in which they are offered.
func list(n *node, a *arguments) (answer, error) {
	found := []answer{}
	a.fail(n.eachHeld(func(bin uint8, index uint64, address storage.Address) {
		found = append(found, answer{"bin": bin, "index": index, "address": address.Hex()})
	}))
	return answer{"chunks": found}, a.end()
}

func has(n *node, a *arguments) (answer, error) {
	address := a.address()
	if err := a.end(); err != nil {
		return nil, err
	}
	return answer{"held": n.store.Has(context.Background(), address)}, nil
}

// wait looks at the bins' newest indexes, which are of one sequence, before it counts: that reads all chunks.
func wait(n *node, a *arguments) (answer, error) {
	total, timeout := a.number(), a.seconds()
	if err := a.end(); err != nil {
		return nil, err
	}
	for begin := time.Now(); ; time.Sleep(pollEach) {
		took, newest := time.Since(begin), uint64(0)
		for bin := uint8(0); bin <= storage.MaxPO; bin++ {
			newest = max(newest, n.store.BinIndex(bin))
		}
		if newest+1 < total && took < timeout {
			continue
		}
		found, err := n.count()
		if err != nil {
			return nil, err
		}
		if found >= total {
			return answer{"chunks": found, "seconds": took.Seconds()}, nil
		}
		if took >= timeout {
			return nil, fmt.Errorf("%d chunks after %v", found, timeout)
		}
	}
}

func traffic(n *node, a *arguments) (answer, error) {
	sent, taken := answer{}, answer{}
	for i, name := range messages {
		sent[name] = n.watch.sent[i].Load()
		taken[name] = n.watch.taken[i].Load()
	}
	return answer{"sent": sent, "received": taken}, a.end()
}

// endings are told once.
func endings(n *node, a *arguments) (answer, error) {
	n.watch.lock.Lock()
	defer n.watch.lock.Unlock()
	found := n.watch.ends
	n.watch.ends = nil
	return answer{"ended": append([]ended{}, found...)}, a.end()
}
