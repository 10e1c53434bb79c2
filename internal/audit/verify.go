package audit

import (
	"encoding/json"
	"fmt"
)

// BadError names the first record at which a chain is not what it was.
type BadError struct {
	Chain string `json:"chain"`
	Seq   uint64 `json:"seq"`
	Why   string `json:"why"`
}

func (e *BadError) Error() string { return fmt.Sprintf("%s record %d %s", e.Chain, e.Seq, e.Why) }

// Dropped is the payload of EgressDropped: up to where the beginning of a chain is
// gone.
type Dropped struct {
	Chain string `json:"chain"`
	First uint64 `json:"first"` // oldest that this has removed
	Last  Head   `json:"last"`
}

// Verified is what was judged to be whole.
type Verified struct {
	Heads  map[string]Head   `json:"heads"`
	Counts map[string]uint64 `json:"counts"` // of records that are there
}

// Verify reads all of a domain's chains. They must have come at least as far as the
// heads that are kept beside the store, and as those that the caller knows from
// elsewhere, such as a signed one. What is not whole gives a *BadError.
func Verify(pager Pager, elsewhere ...map[string]Head) (Verified, error) {
	v := &verifier{
		wanted: elsewhere, last: map[string]Head{}, count: map[string]uint64{},
		started: map[string]Head{}, dropped: map[Head]bool{},
	}
	known := false
	for _, chain := range Chains() {
		err := pager.Each(chain, 0, func(heads map[string]Head, entries []Entry) error {
			if !known { // before all that is read: the chains may grow meanwhile
				known = true
				if heads == nil {
					return &BadError{Main, 1, "and all after it cannot be judged: the file with the chains' heads is missing"}
				}
				v.wanted = append([]map[string]Head{heads}, elsewhere...)
			}
			for _, e := range entries {
				if v.add(chain, e); v.bad != nil {
					return v.bad
				}
			}
			return nil
		})
		if err != nil {
			return Verified{}, err
		}
	}
	v.end()
	if v.bad != nil {
		return Verified{}, v.bad
	}
	return Verified{Heads: v.last, Counts: v.count}, nil
}

type verifier struct {
	wanted  []map[string]Head
	last    map[string]Head
	count   map[string]uint64
	started map[string]Head // what is before the first record that is there
	dropped map[Head]bool
	bad     *BadError
}

func (v *verifier) fail(chain string, seq uint64, format string, args ...any) {
	if v.bad == nil {
		v.bad = &BadError{chain, seq, fmt.Sprintf(format, args...)}
	}
}

func (v *verifier) add(chain string, e Entry) {
	last := v.last[chain]
	if v.count[chain] == 0 && chain == Egress && e.Seq > 1 {
		last = Head{e.Seq - 1, e.Prev} // must have been dropped, which the main chain tells
		v.started[chain] = last
	}
	switch {
	case e.Seq != last.Seq+1:
		v.fail(chain, last.Seq+1, "is missing: the next one is %d", e.Seq)
		return
	case e.Damage != "":
		v.fail(chain, e.Seq, "is damaged: %s", e.Damage)
		return
	}
	switch {
	case e.Prev != last.Hash:
		v.fail(chain, e.Seq, "does not follow the one before it: one of the two was changed or exchanged")
	case e.Sum() != e.Hash:
		v.fail(chain, e.Seq, "was changed: its content does not have its hash")
	}
	for _, heads := range v.wanted {
		if want := heads[chain]; want.Seq == e.Seq && want.Hash != e.Hash {
			v.fail(chain, e.Seq, "is not the one that the chain had come to: the chain was written anew")
		}
	}
	v.last[chain] = Head{e.Seq, e.Hash}
	v.count[chain]++
	switch e.Kind {
	case ChainBroken:
		v.fail(chain, e.Seq, "tells that records were missing when the store was opened: %s", e.Payload)
	case EgressDropped:
		var d Dropped
		if err := json.Unmarshal(e.Payload, &d); err != nil {
			v.fail(chain, e.Seq, "does not say what was dropped: %v", err)
		} else if chain == Main && d.Chain == Egress {
			v.dropped[d.Last] = true
		}
	}
}

// end judges the two ends of each chain.
func (v *verifier) end() {
	for chain, start := range v.started {
		if !v.dropped[start] {
			v.fail(chain, start.Seq, "and all before it are missing, and the main chain does not tell that they were dropped")
		}
	}
	for _, chain := range Chains() {
		for _, heads := range v.wanted {
			if want := heads[chain]; v.last[chain].Seq < want.Seq {
				v.fail(chain, v.last[chain].Seq+1, "and all after it are missing: the chain had come to record %d", want.Seq)
			}
		}
	}
}
