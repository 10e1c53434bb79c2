// Agent is the attacker's program: it runs in the sandbox, as a static binary, and
// does what a shell cannot. Its host mode is the user's side of generated programs.
//
//	agent OP [-s SLOT] [PATH [TO]] [-x TEXT]…   one op, or several separated by --
//	agent view DIR | host DIR | setup DIR       generated programs, over stdin
//	agent peer                                  the other process of pass, on descriptor 3
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/lazaret-dev/lazaret/test/attacks/git/generator"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("nothing to do")
	}
	switch mode := args[0]; {
	case mode == "peer":
		return generator.Peer(os.NewFile(3, "peer"))
	case mode == "view" && len(args) == 2:
		return withPeer(func(peer *os.File) error {
			m := generator.NewMachine(args[1], peer)
			defer m.Close()
			return generator.Serve(os.Stdin, os.Stdout, generator.NewLocal(m), nil)
		})
	case mode == "host" && len(args) == 2:
		return generator.Serve(os.Stdin, os.Stdout, nil, generator.NewHost(args[1]))
	case mode == "setup" && len(args) == 2:
		return generator.Setup(context.Background(), args[1])
	case mode == "index":
		return index(args[1:])
	case mode == "blob" && len(args) == 3:
		return blob(args[1], args[2])
	case mode == "loop" && len(args) > 2:
		return loop(args[1], args[2:])
	}
	return withPeer(func(peer *os.File) error {
		m := generator.NewMachine("", peer)
		defer m.Close()
		return ops(m, args)
	})
}

// withPeer starts the process that descriptors are passed to.
func withPeer(do func(peer *os.File) error) error {
	mine, theirs, err := generator.Socketpair()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "peer")
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = do(mine)
	cancel()
	_ = cmd.Wait() // killed
	return errors.Join(err, mine.Close(), theirs.Close())
}

// ops runs ops separated by --, with one set of descriptors. All of them run; the
// error is the last one's.
func ops(m *generator.Machine, args []string) error {
	var err error
	for len(args) > 0 {
		var one []string
		one, args = cut(args)
		var op generator.Op
		if op, err = parse(one); err != nil {
			return err
		}
		if err = m.Do(op); err != nil {
			err = fmt.Errorf("%s: %w", op, err)
			if len(args) > 0 {
				fmt.Fprintln(os.Stderr, "agent:", err)
			}
		}
	}
	return err
}

func cut(args []string) (one, rest []string) {
	for i, a := range args {
		if a == "--" {
			return args[:i], args[i+1:]
		}
	}
	return args, nil
}

func parse(args []string) (generator.Op, error) {
	if len(args) == 0 {
		return generator.Op{}, errors.New("an op is missing")
	}
	op := generator.Op{Kind: args[0]}
	var paths []string
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-x", "-s":
			if i+1 == len(args) {
				return op, fmt.Errorf("%s needs a value", args[i])
			}
			i++
			if args[i-1] == "-x" {
				op.Text = args[i]
				continue
			}
			var err error
			if op.Slot, err = strconv.Atoi(args[i]); err != nil {
				return op, err
			}
		default:
			paths = append(paths, args[i])
		}
	}
	if len(paths) > 0 {
		op.Path = paths[0]
	}
	if len(paths) > 1 {
		op.To = paths[1]
	}
	return op, nil
}

// loop runs ops again and again for a time.
func loop(seconds string, args []string) error {
	n, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return err
	}
	m := generator.NewMachine("", nil)
	defer m.Close()
	end := time.Now().Add(time.Duration(n * float64(time.Second)))
	for time.Now().Before(end) {
		rest := args
		for len(rest) > 0 {
			var one []string
			one, rest = cut(rest)
			op, err := parse(one)
			if err != nil {
				return err
			}
			_ = m.Do(op) // tried again
		}
	}
	return nil
}

// index writes an index file as git would not:
//
//	index OUT VERSION [+EXT=DATA] MODE:ID:[s]:PATH…
func index(args []string) error {
	if len(args) < 2 {
		return errors.New("index needs a file and a version")
	}
	version, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	var entries []generator.Entry
	var extensions [][]byte
	for _, a := range args[2:] {
		if ext, ok := strings.CutPrefix(a, "+"); ok {
			name, data, _ := strings.Cut(ext, "=")
			raw, err := unhex(data)
			if err != nil {
				return err
			}
			extensions = append(extensions, generator.Extension(name, raw))
			continue
		}
		f := strings.SplitN(a, ":", 4)
		if len(f) != 4 {
			return fmt.Errorf("not an entry: %q", a)
		}
		mode, err := strconv.ParseUint(f[0], 8, 32)
		if err != nil {
			return err
		}
		id, err := unhex(f[1])
		if err != nil {
			return err
		}
		e := generator.Entry{Mode: uint32(mode), Path: f[3], SkipWorktree: f[2] == "s"}
		copy(e.ID[:], id)
		entries = append(entries, e)
	}
	data, err := generator.EncodeIndex(version, entries, extensions...)
	if err != nil {
		return err
	}
	if args[0] == "-" {
		_, err = os.Stdout.Write(data)
		return err
	}
	return os.WriteFile(args[0], data, 0o644)
}
