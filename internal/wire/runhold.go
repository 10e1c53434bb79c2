package wire

// PathHold says that a living lazaret run uses a sandbox: a POST of a HoldRequest,
// after whose answer {} the connection stays open. Its end is the end of that use,
// SIGKILL included: what of the session still runs in the sandbox is ended, and a
// sandbox that lazaret run has started is stopped after its last use.
const PathHold = "/v1/hold"

// HoldRequest asks for a hold.
type HoldRequest struct {
	Version     int    `json:"version"`
	ContainerID string `json:"container_id"`
	SessionID   string `json:"session_id"` // a UUID; the session that ends with this connection
}
