package terminfo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
)

// Magic numbers of term(5): numbers of 16 and of 32 bits.
const (
	magicShort = 0o432
	magicLong  = 0o1036
	headerSize = 12
)

// parseNames checks the layout of a compiled entry, as term(5) has it, and returns
// its names: the primary one, then the aliases. The last, a description in prose,
// is among them where there is one. What follows the standard sections (the
// extended capabilities) is not looked at.
func parseNames(data []byte) ([]string, error) {
	if len(data) < headerSize {
		return nil, errors.New("shorter than a header")
	}
	var header [6]int
	for i := range header {
		header[i] = int(int16(binary.LittleEndian.Uint16(data[2*i:]))) //nolint:gosec // term(5): these shorts are signed
	}
	numberSize := 2
	switch header[0] {
	case magicShort:
	case magicLong:
		numberSize = 4
	default:
		return nil, errors.New("the magic number is not terminfo's")
	}
	names, flags, numbers, offsets, table := header[1], header[2], header[3], header[4], header[5]
	if names < 2 || flags < 0 || numbers < 0 || offsets < 0 || table < 0 {
		return nil, errors.New("negative sizes, or no names")
	}
	size := headerSize + names + flags
	size += size % 2 // the numbers begin at an even byte
	if size += numbers*numberSize + offsets*2; size > len(data) || size+table > len(data) {
		return nil, errors.New("cut off")
	}
	text, _, ok := bytes.Cut(data[headerSize:headerSize+names], []byte{0})
	if !ok || len(text) == 0 {
		return nil, errors.New("the names have no end")
	}
	return strings.Split(string(text), "|"), nil
}
