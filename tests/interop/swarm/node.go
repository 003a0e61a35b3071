package main

import (
	"crypto/ecdsa"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/p2p"
	"github.com/ethereum/go-ethereum/p2p/enode"
	"github.com/ethereum/go-ethereum/swarm/network"
	"github.com/ethereum/go-ethereum/swarm/network/stream"
	"github.com/ethereum/go-ethereum/swarm/state"
	"github.com/ethereum/go-ethereum/swarm/storage"
	"github.com/ethereum/go-ethereum/swarm/storage/feed"
)

const (
	peersMax = 50
	// What upstream's command takes where nothing else is set.
	peerServersMax = 10000
)

type options struct {
	folder, listen string
	network        uint64
	light, noSync  bool
	offerRetrieved bool
	autoSubscribe  time.Duration
}

// node is upstream's node, without what is above chunks and files, and without discovery.
type node struct {
	overlay  []byte
	server   *p2p.Server
	registry *stream.Registry
	kad      *network.Kademlia
	store    *storage.NetStore
	files    *storage.FileStore
	watch    *watch
	closers  []func()
}

// keyIn reads the node's key, which is made the first time: a node that is started again is the same one.
func keyIn(folder string) (*ecdsa.PrivateKey, error) {
	path := filepath.Join(folder, "key")
	key, err := crypto.LoadECDSA(path)
	if os.IsNotExist(err) {
		if key, err = crypto.GenerateKey(); err == nil {
			err = crypto.SaveECDSA(path, key)
		}
	}
	return key, err
}

func start(o options) (n *node, err error) {
	if err := os.MkdirAll(o.folder, 0700); err != nil {
		return nil, err
	}
	key, err := keyIn(o.folder)
	if err != nil {
		return nil, err
	}
	n = &node{overlay: crypto.Keccak256(crypto.FromECDSAPub(&key.PublicKey)), watch: &watch{}}
	states, err := state.NewDBStore(filepath.Join(o.folder, "states"))
	if err != nil {
		return nil, err
	}
	local, err := n.openStore(o.folder)
	if err != nil {
		return nil, err
	}
	n.kad = network.NewKademlia(n.overlay, network.NewKadParams())
	delivery := stream.NewDelivery(n.kad, n.store)
	n.store.NewNetFetcherFunc = network.NewFetcherFactory(delivery.RequestFromPeers, !o.offerRetrieved).New
	feeds := feed.NewHandler(&feed.HandlerParams{})
	feeds.SetStore(n.store)
	content := storage.NewContentAddressValidator(storage.MakeHashFunc(storage.DefaultHash))
	local.Validators = []storage.ChunkValidator{content, feeds}

	id := enode.PubkeyToIDV4(&key.PublicKey)
	n.registry = stream.NewRegistry(id, delivery, n.store, states, registryOptions(o), nil)
	hive := network.NewHiveParams()
	hive.Discovery = false
	bzz := network.NewBzz(
		&network.BzzConfig{OverlayAddr: n.overlay, HiveParams: hive, NetworkID: o.network, LightNode: o.light},
		n.kad, states, n.registry.GetSpec(), n.registry.Run,
	)
	n.server = &p2p.Server{Config: p2p.Config{
		PrivateKey:  key,
		MaxPeers:    peersMax,
		NoDiscovery: true,
		Name:        "swarm-of-go-ethereum-1.8.27",
		Protocols:   n.watch.protocols(bzz.Protocols()),
		ListenAddr:  o.listen,
	}}
	if err := n.server.Start(); err != nil {
		return nil, err
	}
	// What peers are told in the handshake has the port that was found just now.
	bzz.UpdateLocalAddr([]byte(n.server.Self().String()))
	n.closers = append(n.closers, n.server.Stop, n.store.Close, func() { states.Close() })
	return n, nil
}

func (n *node) openStore(folder string) (*storage.LocalStore, error) {
	params := storage.NewDefaultLocalStoreParams()
	params.Init(folder)
	params.BaseKey = n.overlay
	local, err := storage.NewLocalStore(params, nil)
	if err != nil {
		return nil, err
	}
	if n.store, err = storage.NewNetStore(local, nil); err != nil {
		return nil, err
	}
	n.files = storage.NewFileStore(n.store, storage.NewFileStoreParams())
	return local, nil
}

func registryOptions(o options) *stream.RegistryOptions {
	found := &stream.RegistryOptions{
		SkipCheck:       true,
		Syncing:         stream.SyncingRegisterOnly,
		Retrieval:       stream.RetrievalEnabled,
		SyncUpdateDelay: o.autoSubscribe,
		MaxPeerServers:  peerServersMax,
	}
	if o.autoSubscribe > 0 {
		found.Syncing = stream.SyncingAutoSubscribe
	}
	if o.light {
		found.Retrieval = stream.RetrievalClientOnly
	}
	if o.light || o.noSync {
		found.Syncing = stream.SyncingDisabled
	}
	return found
}

func (n *node) close() {
	for _, each := range n.closers {
		each()
	}
}

// peer is the connected one with that overlay, of which the first digits are enough.
func (n *node) peer(overlay string) (found *network.Peer, err error) {
	n.kad.EachConn(nil, 256, func(p *network.Peer, _ int) bool {
		text := hex.EncodeToString(p.Over())
		if overlay != "" && len(overlay) <= len(text) && text[:len(overlay)] == overlay {
			found = p
		}
		return found == nil
	})
	if found == nil {
		err = fmt.Errorf("no peer is connected whose overlay is %s", overlay)
	}
	return found, err
}

// watch counts the messages of sub-protocols and keeps why they ended: peers are told a number for all of it.
type watch struct {
	lock  sync.Mutex
	ends  []ended
	sent  [len(messages)]atomic.Int64
	taken [len(messages)]atomic.Int64
}

type ended struct {
	Peer     string `json:"peer"`
	Protocol string `json:"protocol"`
	Why      string `json:"why"`
}

// The messages of stream/8 in the order of their codes.
var messages = [...]string{
	"Unsubscribe", "OfferedHashes", "WantedHashes", "TakeoverProof", "Subscribe", "RetrieveRequest",
	"RetrieveDelivery", "SubscribeError", "RequestSubscription", "Quit", "StreamDelivery",
}

func (w *watch) protocols(all []p2p.Protocol) []p2p.Protocol {
	for i := range all {
		name, run := all[i].Name, all[i].Run
		all[i].Run = func(p *p2p.Peer, rw p2p.MsgReadWriter) error {
			if name == "stream" {
				rw = &counting{rw, w}
			}
			err := run(p, rw)
			w.lock.Lock()
			defer w.lock.Unlock()
			key := p.Node().Pubkey()
			w.ends = append(w.ends, ended{hex.EncodeToString(crypto.FromECDSAPub(key)[1:]), name, fmt.Sprint(err)})
			return err
		}
	}
	return all
}

type counting struct {
	p2p.MsgReadWriter
	*watch
}

func (c *counting) ReadMsg() (p2p.Msg, error) {
	msg, err := c.MsgReadWriter.ReadMsg()
	if err == nil && msg.Code < uint64(len(messages)) {
		c.taken[msg.Code].Add(1)
	}
	return msg, err
}

func (c *counting) WriteMsg(msg p2p.Msg) error {
	if msg.Code < uint64(len(messages)) {
		c.sent[msg.Code].Add(1)
	}
	return c.MsgReadWriter.WriteMsg(msg)
}
