// Package generator owns the primitives that attack a guarded git repository,
// random programs made of them, and the snapshot of what such a program must not
// change on the host. It knows two directories: the view, where programs run, and
// the host's side of the same files. They may be a container and a workspace, or a
// mount and what lies behind it.
package generator
