package early

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestNothingOfTheRuntimeIsCalled reads what the compiler makes of this package:
// a variable that escapes, a closure or a conversion would call into a runtime
// that has not started.
func TestNothingOfTheRuntimeIsCalled(t *testing.T) {
	function := regexp.MustCompile(`^(\S+) STEXT (.*)size=`)
	call := regexp.MustCompile(`\b(?:CALL|BL)\s+([^\s(]\S*)\(SB\)`)
	const own = "github.com/lazaret-dev/lazaret/internal/early."
	// Asked only where a fault of ours is found, or while a collector runs; memequal
	// needs nothing.
	allowed := regexp.MustCompile(`^(` + regexp.QuoteMeta(own) + `.*|syscall\.RawSyscall6|runtime\.(memequal|panicBounds|panicunsafestringlen|gcWriteBarrier\d|wbZero|wbMove))$`)
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-S", ".")
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("go build: %v: %s", err, out)
			}
			current, seen := "", 0
			for line := range strings.Lines(string(out)) {
				if m := function.FindStringSubmatch(line); m != nil {
					current = strings.TrimPrefix(m[1], own)
					wrapper := strings.Contains(m[2], "dupok") && current != "early" // nobody calls it
					if wrapper || strings.Contains(current, "GitOutcome") || current == "Git" || current == "init" || current == "RefusalsFile" || !strings.HasPrefix(m[1], own) {
						current = "" // Go's
						continue
					}
					seen++
					if !strings.Contains(m[2], "nosplit") {
						t.Errorf("%s may grow its stack", current)
					}
				}
				if m := call.FindStringSubmatch(line); m != nil && current != "" && !allowed.MatchString(m[1]) {
					t.Errorf("%s calls %s", current, m[1])
				}
			}
			if seen < 20 {
				t.Errorf("only %d functions seen", seen)
			}
		})
	}
}
