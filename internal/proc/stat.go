package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// Stat is what /proc/<pid>/stat (proc_pid_stat(5)) tells.
type Stat struct {
	Parent int
	Group  int
	Start  uint64 // clock ticks after boot; with the pid it names a process for good
	Zombie bool   // it has ended and was not waited for
}

// ReadStat reads the Stat of a process; a pid that nobody has is os.ErrNotExist.
func ReadStat(pid int) (Stat, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	data, err := os.ReadFile(path)
	if err != nil {
		return Stat{}, err
	}
	s, err := ParseStat(data)
	if err != nil {
		return Stat{}, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// ParseStat takes the file's text. It counts from the end of the name, which can
// hold anything.
func ParseStat(data []byte) (s Stat, err error) {
	i := bytes.LastIndexByte(data, ')')
	f := bytes.Fields(data[i+1:])
	if i < 0 || len(f) < 20 {
		return s, fmt.Errorf("unknown form: %.80q", data)
	}
	if s.Parent, err = strconv.Atoi(string(f[1])); err != nil {
		return s, err
	}
	if s.Group, err = strconv.Atoi(string(f[2])); err != nil {
		return s, err
	}
	s.Zombie = f[0][0] == 'Z' || f[0][0] == 'X'
	s.Start, err = strconv.ParseUint(string(f[19]), 10, 64)
	return s, err
}

// StartTime of a live process in clock ticks after boot. One that has ended is
// os.ErrProcessDone, also while nobody has waited for it.
func StartTime(pid int) (uint64, error) {
	s, err := ReadStat(pid)
	if err != nil {
		return 0, err
	}
	if s.Zombie {
		return 0, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	return s.Start, nil
}
