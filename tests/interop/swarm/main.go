// Command swarm is a node of go-ethereum 1.8.27's Swarm that does what it is told on standard input, for
// tests and a benchmark that have ours beside it. A line is a JSON list of texts, a command and its
// arguments; the answer to each is one JSON object on a line, {"error": ...} if it failed. It ends with its
// input.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/ethereum/go-ethereum/log"
)

type answer map[string]interface{}

func main() {
	var o options
	flag.StringVar(&o.folder, "dir", "", "where its key, chunks and intervals are")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:0", "where it listens")
	flag.Uint64Var(&o.network, "network", 3, "the network that it is of")
	flag.BoolVar(&o.light, "light", false, "neither syncs nor serves")
	flag.BoolVar(&o.noSync, "nosync", false, "has no SYNC streams")
	flag.BoolVar(&o.offerRetrieved, "offer", false, "asks for retrieved chunks to be offered first")
	flag.DurationVar(&o.autoSubscribe, "auto", 0, "requests subscriptions by itself, after so long")
	verbosity := flag.Int("verbosity", int(log.LvlWarn), "what it logs on standard error")
	flag.Parse()
	logged := log.StreamHandler(os.Stderr, log.LogfmtFormat())
	log.Root().SetHandler(log.LvlFilterHandler(log.Lvl(*verbosity), logged))
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(o options) error {
	n, err := start(o)
	if err != nil {
		return err
	}
	defer n.close()
	out := json.NewEncoder(os.Stdout)
	said := answer{"listening": n.server.Self().String(), "overlay": hex.EncodeToString(n.overlay)}
	if err := out.Encode(said); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- n.obey(os.Stdin, out) }()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err = <-ended:
	case <-signals:
	}
	return err
}

func (n *node) obey(in io.Reader, out *json.Encoder) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		found, err := n.do(lines.Bytes())
		if err != nil {
			found = answer{"error": err.Error()}
		}
		if err := out.Encode(found); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (n *node) do(line []byte) (answer, error) {
	var words []string
	if err := json.Unmarshal(line, &words); err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("no command")
	}
	chosen, ok := commands[words[0]]
	if !ok {
		return nil, fmt.Errorf("no command %q", words[0])
	}
	given := &arguments{words: words[1:]}
	found, err := chosen(n, given)
	if given.err != nil {
		return nil, given.err
	}
	return found, err
}
