package wire

// Network asks for a filtered network. All containers that live at one time ask
// for the same.
type Network struct {
	Mode  string   `json:"mode"`            // "filtered" or "learn"
	Allow []string `json:"allow,omitempty"` // entries for netrule.Parse
	Deny  []string `json:"deny,omitempty"`
	// Sidecar is the program that runs the Network Sidecar, absolute.
	Sidecar string `json:"sidecar"`
	// Engine is the network namespace that the engine has made, absolute; "" for
	// none. It brings connections to published ports there.
	Engine string `json:"engine,omitempty"`
	// Inbound has them reach the sandbox; else a container that publishes ports is
	// refused.
	Inbound bool `json:"inbound,omitempty"`
	// Late: the engine brings its network between create and start, into the
	// sandbox's own namespace. It is replaced there, at PathConnect.
	Late bool `json:"late,omitempty"`
}

// NetworkPlan is where a container finds its network.
type NetworkPlan struct {
	Path   string `json:"path,omitempty"` // its network namespace; "" where it comes late
	Resolv string `json:"resolv"`         // host path of its resolv.conf
}

// ConnectRequest comes from the shim right before a container with a late network
// is started.
type ConnectRequest struct {
	Version     int    `json:"version"`
	ContainerID string `json:"container_id"`
}

// States of a network.
const (
	NetworkUp   = "up"
	NetworkDown = "down" // a part of it has ended and is being started again: nothing passes
)

// NetworkStatus is a domain's filtered network.
type NetworkStatus struct {
	State   string   `json:"state"`
	Mode    string   `json:"mode"`
	Uplink  string   `json:"uplink"`  // the program's name
	Sidecar int      `json:"sidecar"` // its pid
	UplinkP int      `json:"uplink_pid"`
	Allow   []string `json:"allow"`
	Deny    []string `json:"deny"`
	// Session are the changes of the lists that end with the domain's use.
	Session []NetworkChange  `json:"session,omitempty"`
	Blocked []NetworkBlocked `json:"blocked,omitempty"` // newest first
}

// NetworkChange is one change of a live network: an entry that is allowed or
// denied until the domain is no longer in use.
type NetworkChange struct {
	Entry string `json:"entry"`
	Deny  bool   `json:"deny,omitempty"`
}

// NetworkBlocked is a destination that was refused.
type NetworkBlocked struct {
	Name  string `json:"name,omitempty"`
	Addr  string `json:"addr,omitempty"`
	Port  uint16 `json:"port,omitempty"`
	Proto string `json:"proto,omitempty"`
	Count int    `json:"count"`
	Last  string `json:"last"`            // RFC 3339
	Would bool   `json:"would,omitempty"` // learn mode let it pass
}

// NetworkRequest changes a live network.
type NetworkRequest struct {
	Version int             `json:"version"`
	Add     []NetworkChange `json:"add,omitempty"`
	Remove  []NetworkChange `json:"remove,omitempty"`
}

// NetworkResponse says what came of it.
type NetworkResponse struct {
	Cut int `json:"cut"` // flows that are no longer allowed and were ended
}

// Paths of the network.
const (
	PathConnect = "/v1/connect"
	PathNetwork = "/v1/network"
)
