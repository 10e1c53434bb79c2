package gitconf

import (
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Stamp tells whether what was looked at has changed; the zero value is for
// nothing there. Of a directory on the way to something only matters which it is.
type Stamp struct {
	Dev, Ino     uint64
	Mode         uint32
	Size         int64
	Mtime, Ctime syscall.Timespec
}

func stampOf(info fs.FileInfo) Stamp {
	st, ok := (*syscall.Stat_t)(nil), false
	if info != nil {
		st, ok = info.Sys().(*syscall.Stat_t)
	}
	switch {
	case !ok:
		return Stamp{}
	case info.IsDir():
		return Stamp{Dev: st.Dev, Ino: st.Ino, Mode: st.Mode}
	}
	return Stamp{Dev: st.Dev, Ino: st.Ino, Mode: st.Mode, Size: st.Size, Mtime: st.Mtim, Ctime: st.Ctim}
}

// Look is the stamp that Places.Looked has for path at this moment.
func Look(path string) Stamp {
	info, err := os.Lstat(path)
	if err != nil {
		return Stamp{}
	}
	s := stampOf(info)
	if st, ok := info.Sys().(*syscall.Stat_t); ok && strings.HasSuffix(path, "/") {
		s.Mtime = st.Mtim // of its entries
	}
	return s
}
