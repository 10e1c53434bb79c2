package wire

import "fmt"

// PathAudit reads a part of the audit, an audit.Page.
const PathAudit = "/v1/audit"

// AuditPath asks for what comes after a sequence number of a chain.
func AuditPath(chain string, after uint64) string {
	return fmt.Sprintf("%s?chain=%s&after=%d", PathAudit, chain, after)
}
