package spec

import "github.com/opencontainers/runtime-spec/specs-go"

// network gives the container a fresh network namespace, or the one to join, in
// the place of whichever the document names.
func (p Plan) network(d *Document) error {
	if !p.IsolatedNetwork && p.NetworkPath == "" || joins(d, p.NetworkPath) {
		return nil
	}
	var kept []namespace
	for _, n := range d.namespaces {
		if n.Type != specs.NetworkNamespace {
			kept = append(kept, n)
		}
	}
	own := specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: p.NetworkPath}
	d.setNamespaces(append(kept, namespace{own, encode(own)}))
	return nil
}

// joins tells whether the container's network namespace is the one at path, ""
// for one that is made for it.
func joins(d *Document, path string) bool {
	var all []specs.LinuxNamespace
	for _, n := range d.namespaces {
		if n.Type == specs.NetworkNamespace {
			all = append(all, n.LinuxNamespace)
		}
	}
	return len(all) == 1 && all[0].Path == path
}
