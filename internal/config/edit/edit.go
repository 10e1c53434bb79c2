// Package edit owns the changes that a person has Lazaret make in his own
// config.toml.
package edit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/lazaret-dev/lazaret/internal/atomicfile"
	"github.com/lazaret-dev/lazaret/internal/config"
	"github.com/lazaret-dev/lazaret/internal/netrule"
)

// AddAllow adds an entry to a profile's network.allow in the user's file, which is
// made where there is none. Comments and layout stay; the file is replaced at once.
// It returns the file's path. An entry that is there already is no error. Where the
// file is written in a way that cannot be added to, the error says so and nothing
// has changed.
func AddAllow(o config.Options, profile, entry string) (path string, err error) {
	if path = config.UserFile(o); path == "" {
		return "", errors.New("add to the profile: there is no home to have a config.toml in")
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("add %q to profile %q in %s: %w", entry, profile, config.Printable(path), err)
		}
	}()
	r, err := netrule.Parse(entry)
	if err != nil {
		return path, err
	}
	unlock, err := atomicfile.LockDir(filepath.Dir(path))
	if err != nil {
		return path, err
	}
	defer unlock()
	mode, file := fs.FileMode(0o600), path
	fi, err := os.Stat(path)
	switch {
	case err == nil && !fi.Mode().IsRegular():
		return path, errors.New("is no regular file")
	case err == nil:
		mode = fi.Mode().Perm()
		file, err = filepath.EvalSymlinks(path) // a link stays one
	case errors.Is(err, fs.ErrNotExist):
		if _, err = os.Lstat(path); err == nil {
			return path, errors.New("is a symbolic link that leads nowhere: mend or remove the link")
		}
		err = nil
	}
	if err != nil {
		return path, err
	}
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	text, err := addAllow(string(data), profile, r.String())
	if err != nil || text == string(data) {
		return path, err
	}
	return path, atomicfile.Write(file, []byte(text), mode, true)
}

// errByHand tells of a file that addAllow does not understand.
var errByHand = errors.New("the file is written in a way that only a person can add to: write it into network.allow yourself")

// addAllow is AddAllow on text. What it has made is read again: nothing but the
// one entry may differ.
func addAllow(text, profile, entry string) (string, error) {
	var old, now map[string]any
	if _, err := toml.Decode(text, &old); err != nil {
		return "", fmt.Errorf("not valid: %w", err)
	}
	network := table(table(table(old, "profiles"), profile), "network")
	have, _ := network["allow"].([]any)
	if slices.Contains(have, any(entry)) {
		return text, nil
	}
	if denied, _ := network["deny"].([]any); slices.Contains(denied, any(entry)) {
		return "", errors.New("the profile denies it, and deny wins: remove it there first")
	}
	out := insertAllow(text, profile, fmt.Sprintf("%q", entry), network["allow"] != nil)
	if _, err := toml.Decode(out, &now); err != nil {
		return "", errByHand
	}
	network["allow"] = append(have, any(entry))
	if !reflect.DeepEqual(old, now) {
		return "", errByHand
	}
	return out, nil
}

// table is the table of a name, made where it is missing.
func table(of map[string]any, name string) map[string]any {
	t, ok := of[name].(map[string]any)
	if !ok {
		t = map[string]any{}
		if of != nil {
			of[name] = t
		}
	}
	return t
}

// insertAllow puts a quoted entry where it seems to belong.
func insertAllow(text, profile, quoted string, there bool) string {
	headerLine := regexp.MustCompile(`^\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$`)
	allowLine := regexp.MustCompile(`^\s*((?:[\w-]+\s*\.\s*)*allow)\s*=\s*\[`)
	plain := strings.NewReplacer(`"`, "", `'`, "", " ", "", "\t", "")
	want := "profiles." + profile + ".network"
	header, at := "", 0
	for line := range strings.SplitAfterSeq(text, "\n") {
		bare := strings.TrimRight(line, "\r\n")
		switch {
		case headerLine.MatchString(bare):
			header = plain.Replace(headerLine.FindStringSubmatch(bare)[1])
			if header == want && !there {
				return text[:at+len(bare)] + "\nallow = [" + quoted + "]" + text[at+len(bare):]
			}
		case there && allowLine.MatchString(bare):
			m := allowLine.FindStringSubmatchIndex(bare)
			if strings.TrimPrefix(header+"."+plain.Replace(bare[m[2]:m[3]]), ".") == want+".allow" {
				return insertInto(text, at+m[1], quoted)
			}
		}
		at += len(line)
	}
	if there {
		return text // as an inline table, or with quoted keys
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if text != "" {
		text += "\n"
	}
	return text + "[" + want + "]\nallow = [" + quoted + "]\n"
}

// insertInto adds a value at the end of the array whose inside begins at from.
func insertInto(text string, from int, quoted string) string {
	last, comma := 0, false // where the last value ends, and whether a comma follows
	i := from
	for ; i < len(text) && text[i] != ']'; i++ {
		switch c := text[i]; c {
		case '#':
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case '"', '\'':
			for i++; i < len(text) && text[i] != c; i++ {
				if text[i] == '\\' && c == '"' {
					i++
				}
			}
			last, comma = i+1, false
		case ',':
			comma = true
		}
	}
	switch {
	case i >= len(text) || last > i:
		return text
	case last == 0:
		return text[:from] + quoted + text[from:]
	case !strings.Contains(text[last:i], "\n"):
		return text[:last] + ", " + quoted + text[last:]
	}
	begin := strings.LastIndexByte(text[:last], '\n') + 1
	indent := text[begin : begin+len(text[begin:])-len(strings.TrimLeft(text[begin:], " \t"))]
	end := strings.LastIndexByte(text[:i], '\n') + 1 // of the line with the bracket
	sep := ""
	if !comma {
		sep = ","
	}
	return text[:last] + sep + text[last:end] + indent + quoted + ",\n" + text[end:]
}
