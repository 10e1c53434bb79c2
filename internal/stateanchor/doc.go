// Package stateanchor owns the overlays by which what the agent installs survives:
// one for each state path, over the image's own directory, with the changes in
// the Domain Root (docs/state-anchor.md).
//
// Everything here runs in the namespaces in which the engine runs its runtime.
package stateanchor
