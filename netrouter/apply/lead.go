package apply

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Lead has every TCP connection that comes into this thread's network namespace, or
// that its loopback carries, go to a port of it. A listener there can ask for the
// original one (SO_ORIGINAL_DST).
func Lead(port uint16) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	r := ruleset{c: c, t: &nftables.Table{Name: tableName + "-inbound", Family: nftables.TableFamilyINet}}
	c.AddTable(r.t)
	c.DelTable(r.t)
	c.AddTable(r.t)
	r.base("prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, nftables.ChainTypeNAT, nftables.ChainPolicyAccept)
	r.rule(ipv4(), l4(unix.IPPROTO_TCP), redirect(port))
	r.base("output", nftables.ChainHookOutput, nftables.ChainPriorityNATDest, nftables.ChainTypeNAT, nftables.ChainPolicyAccept)
	lo := make([]byte, unix.IFNAMSIZ)
	copy(lo, "lo")
	r.rule(ipv4(), l4(unix.IPPROTO_TCP), []expr.Any{meta(expr.MetaKeyOIFNAME), cmp(lo...)}, redirect(port))
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}
