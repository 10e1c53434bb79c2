package audit

import "fmt"

// Head is the end of a chain: the sequence number and hash of its last record.
type Head struct {
	Seq  uint64 `json:"seq"`
	Hash Hash   `json:"hash"`
}

// Entry is what is found at one place of a chain: a record, or why there is none.
type Entry struct {
	Record
	Damage string `json:"damage,omitempty"` // then only Seq counts
}

// Page is a part of a chain, in order.
type Page struct {
	Heads   map[string]Head `json:"heads"`   // as they are kept beside the store; nil where they are missing
	Entries []Entry         `json:"entries"` // after the asked-for one, oldest first
	More    bool            `json:"more"`    // others follow
}

// PageBytes bounds the kept size of a page's entries, but for a single one that is
// larger, so that it fits into an answer of the control protocol.
const PageBytes = 256 << 10

// Pager reads a page of a chain: what comes after a sequence number.
type Pager func(chain string, after uint64) (Page, error)

// Each calls f with every page of a chain after a sequence number, oldest first.
func (p Pager) Each(chain string, after uint64, f func(heads map[string]Head, entries []Entry) error) error {
	for {
		page, err := p(chain, after)
		if err != nil {
			return err
		}
		if err := f(page.Heads, page.Entries); err != nil {
			return err
		}
		if !page.More || len(page.Entries) == 0 {
			return nil
		}
		last := page.Entries[len(page.Entries)-1].Seq
		if last <= after {
			return fmt.Errorf("the %s chain does not go on after record %d: the store is damaged", chain, after)
		}
		after = last
	}
}
