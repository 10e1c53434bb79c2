// Package runtimetools runs the OCI runtime-tools validation programs with bare
// runsc and through lazaret-runtime: what runsc passes must pass through the shim.
//
// The programs are another module's (programs/go.mod), built as they are.
package runtimetools
