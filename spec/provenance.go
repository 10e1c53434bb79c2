package spec

import (
	"slices"
	"sort"
	"strings"
	"unicode"
)

// NeedsProvenance tells whether it matters what of this document the image wrote:
// it has a LAZARET_PROFILE, or an annotation that is neither descriptive
// (org.opencontainers.image.*) nor one that podman gives every container. Only
// then is the cost of finding the image due.
func NeedsProvenance(d *Document) bool {
	if slices.ContainsFunc(d.Env(), func(entry string) bool { return envName(entry) == ProfileEnv }) {
		return true
	}
	for name := range d.notes {
		if !descriptive(name) && !podmans(name) {
			return true
		}
	}
	return false
}

func descriptive(name string) bool { return strings.HasPrefix(name, "org.opencontainers.image.") }

func podmans(name string) bool {
	switch name {
	case "io.container.manager", "io.kubernetes.cri-o.Created", "io.kubernetes.cri-o.TTY":
		return true
	}
	return strings.HasPrefix(name, "io.podman.annotations.")
}

// ImageAnnotations lists, sorted, the annotations of have that come from the
// image, for Plan.DropAnnotations: podman copies a manifest's annotations into the
// document, where they would steer Lazaret (dev.lazaret.*), runsc (dev.gvisor.*,
// io.kubernetes.cri*) or another runtime (run.oci.*). Those are the ones whose
// name and value are the image's, but for the descriptive
// org.opencontainers.image.*; image lists every value that the image has for a
// name. A user who gives a container the very pair that its image carries loses
// it too, as nothing in the document tells the two apart: the caller should say
// what was dropped.
func ImageAnnotations(have map[string]string, image map[string][]string) []string {
	var drop []string
	for name, value := range have {
		if !descriptive(name) && slices.Contains(image[name], value) {
			drop = append(drop, name)
		}
	}
	sort.Strings(drop)
	return drop
}

// ImageProfile tells whether the LAZARET_PROFILE of the document is its image's,
// given the image's environment, and so no wish of the user's. podman reads an
// image's entries leniently: white space before a name goes, a name alone takes
// its value from podman's own environment, and NAME* takes all that begin so.
func ImageProfile(d *Document, imageEnv []string) bool {
	value, ok := d.Getenv(ProfileEnv)
	return ok && slices.ContainsFunc(imageEnv, func(entry string) bool {
		name, v, hasValue := strings.Cut(strings.TrimLeftFunc(entry, unicode.IsSpace), "=")
		name = strings.TrimSpace(name)
		if prefix, ok := strings.CutSuffix(name, "*"); ok && !hasValue {
			return strings.HasPrefix(ProfileEnv, prefix)
		}
		return name == ProfileEnv && (!hasValue || v == value)
	})
}
