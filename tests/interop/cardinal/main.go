// Command cardinal runs upstream's own producer and consumer of Cardinal streams on lines of JSON,
// for tests and a benchmark that compare ours with them. Each subcommand stands in a file of its own.
package main

import (
	"flag"
	"fmt"
	"os"

	log "github.com/inconshreveable/log15"
)

// What a subcommand does with its arguments.
type command struct {
	usage string
	run   func(flags *flag.FlagSet, arguments []string) error
}

var commands = map[string]command{
	"produce": {"[-time] DEFAULT [PATTERN=TOPIC]...", produce},
	"consume": {"[-time] [-track REGEX]... NUMBER HASH WEIGHT T", consume},
}

func main() {
	// Upstream tells of every block, and of what it finds wrong: warnings alone, beside our lines.
	log.Root().SetHandler(log.LvlFilterHandler(log.LvlWarn, log.StreamHandler(os.Stderr, log.LogfmtFormat())))
	var chosen command
	if len(os.Args) > 1 {
		chosen = commands[os.Args[1]]
	}
	if chosen.run == nil {
		for name, each := range commands {
			fmt.Fprintln(os.Stderr, "cardinal", name, each.usage)
		}
		os.Exit(2)
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	if err := chosen.run(flags, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
