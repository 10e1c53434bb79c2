package main

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // git's object names
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

func unhex(s string) ([]byte, error) { return hex.DecodeString(s) }

// blob writes a loose object, as git writes it, and prints its name. What is not
// "tree" or "commit" content is a blob's: the type is the part before the colon of
// "blob:TEXT".
func blob(gitDir, text string) error {
	kind, body := "blob", []byte(text)
	for _, k := range []string{"blob", "commit"} {
		if rest, ok := bytes.CutPrefix(body, []byte(k+":")); ok {
			kind, body = k, rest
		}
	}
	if rest, ok := bytes.CutPrefix(body, []byte("tree:")); ok { // MODE NAME ID lines
		kind, body = "tree", nil
		for line := range bytes.Lines(rest) {
			f := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 3)
			if len(f) != 3 {
				return fmt.Errorf("not a tree entry: %q", line)
			}
			id, err := unhex(string(f[1]))
			if err != nil {
				return err
			}
			body = append(append(append(append(body, f[0]...), ' '), f[2]...), 0)
			body = append(body, id...)
		}
	}
	data := append(fmt.Appendf(nil, "%s %d\x00", kind, len(body)), body...)
	id := fmt.Sprintf("%x", sha1.Sum(data)) //nolint:gosec // git's
	dir := filepath.Join(gitDir, "objects", id[:2])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, id[2:])
	if _, err := os.Lstat(path); err != nil {
		var z bytes.Buffer
		w := zlib.NewWriter(&z)
		if _, err := w.Write(data); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		tmp := filepath.Join(dir, "tmp_obj_"+id[:6])
		if err := os.WriteFile(tmp, z.Bytes(), 0o444); err != nil {
			return err
		}
		if err := os.Rename(tmp, path); err != nil {
			return err
		}
	}
	fmt.Println(id)
	return nil
}
