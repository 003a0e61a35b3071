// Runs upstream's server, client and relay for tests/gateways/test_datastream_upstream.py.
//
//	driver server PORT FILE   an operation for each line of standard input, until that ends
//	driver client ADDRESS FROM COUNT
//	driver relay ADDRESS PORT FILE
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/0xPolygonHermez/zkevm-data-streamer/datastreamer"
	"github.com/0xPolygonHermez/zkevm-data-streamer/log"
)

const (
	systemID   = 137
	streamType = 1
	version    = 1
	timeout    = 5 * time.Second
)

type entry struct {
	Bookmark *string `json:"bookmark"`
	Type     uint32  `json:"type"`
	Data     string  `json:"data"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func bytesOf(text string) []byte {
	data, err := hex.DecodeString(text)
	check(err)
	return data
}

func number(text string) uint64 {
	value, err := strconv.ParseUint(text, 10, 64)
	check(err)
	return value
}

func quiet() *log.Config {
	return &log.Config{Environment: "production", Level: "error", Outputs: []string{"stderr"}}
}

func serve(port uint16, file string) {
	server, err := datastreamer.NewServer(port, version, systemID, streamType, file, timeout,
		timeout, timeout, quiet())
	check(err)
	check(server.Start())
	fmt.Println("ready")
	lines := bufio.NewReaderSize(os.Stdin, 1<<22)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var operation struct {
			Entries []entry `json:"entries"`
		}
		check(json.Unmarshal(line, &operation))
		check(server.StartAtomicOp())
		for _, each := range operation.Entries {
			if each.Bookmark != nil {
				_, err = server.AddStreamBookmark(bytesOf(*each.Bookmark))
			} else {
				_, err = server.AddStreamEntry(datastreamer.EntryType(each.Type), bytesOf(each.Data))
			}
			check(err)
		}
		check(server.CommitAtomicOp())
		fmt.Println(server.GetHeader().TotalEntries)
	}
}

func read(address string, from, count uint64) {
	client, err := datastreamer.NewClientWithLogsConfig(address, streamType, *quiet())
	check(err)
	done := make(chan struct{})
	client.SetProcessEntryFunc(func(found *datastreamer.FileEntry, _ *datastreamer.StreamClient,
		_ *datastreamer.StreamServer) error {
		fmt.Println(found.Number, uint32(found.Type), hex.EncodeToString(found.Data))
		if found.Number+1 >= from+count {
			close(done)
		}
		return nil
	})
	check(client.Start())
	header, err := client.ExecCommandGetHeader()
	check(err)
	fmt.Println(header.TotalEntries, header.TotalLength)
	check(client.ExecCommandStart(from))
	<-done
}

func relay(address string, port uint16, file string) {
	relaying, err := datastreamer.NewRelay(address, port, version, systemID, streamType, file,
		timeout, timeout, timeout, quiet())
	check(err)
	check(relaying.Start())
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	check(err)
}

func main() {
	switch os.Args[1] {
	case "server":
		serve(uint16(number(os.Args[2])), os.Args[3])
	case "client":
		read(os.Args[2], number(os.Args[3]), number(os.Args[4]))
	case "relay":
		relay(os.Args[2], uint16(number(os.Args[3])), os.Args[4])
	}
}
