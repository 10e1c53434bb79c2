package state

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What published tools lost, kept or mixed up, and what the State Anchor promises,
// with the tests that show it: "directory of the checkout: name of a test".
func TestPublishedCases(t *testing.T) {
	t.Parallel()
	const anchor, kept, commands = "internal/stateanchor: ", "test/e2e/state: ", "test/e2e/statecmd: "
	for _, c := range []struct {
		what  string
		tests []string
	}{
		// Published faults.
		{"the runtime's own overlay keeps writes from ours; restart, commit and diff", []string{
			kept + "TestChangesAreThereInTheNextContainer", "test/e2e/mainpath: TestRootfsIsTheEngines",
		}},
		{"a session replaces the client and other helpers for the next ones", []string{kept + "TestWhatAnEarlierSessionLeft", kept + "TestForgedMarks", kept + "TestALinkAboveAKeptDirectory"}},
		{"one workspace under many spellings, and two under one key", []string{
			"internal/domain: TestHash", "internal/domain: TestCanonicalLeadsToOneAnchor", "test/e2e/mainpath: TestDomains", "internal/config: TestMisspeltSafety",
		}},
		{"another workspace comes to the path of one that was moved away", []string{anchor + "TestAnotherWorkspaceAtThePathIsTold"}},
		{"a reset exists and works", []string{commands + "TestPackage"}},
		{"the image is rebuilt under kept changes: the same release", []string{kept + "TestPackagesSurvive", kept + "TestImagesOfOneDomain", anchor + "TestImagesThatChange"}},
		{"the image is rebuilt under kept changes: another release, an old C library", []string{kept + "TestImagesOfOneDomain", commands + "TestRebase", anchor + "TestImagesThatChange"}},
		{"package databases and configuration outside of /usr", []string{kept + "TestPackagesSurvive", commands + "TestPackage"}},

		// Promises.
		{"overlays of both drivers, rootless and rootful", []string{kept + "TestChangesAreThereInTheNextContainer", kept + "TestRootful", anchor + "TestChangesSurvive"}},
		{"the driver is chosen once; a forced or missing one", []string{kept + "TestRefusals", anchor + "TestRefusals"}},
		{"resolv.conf, hosts and hostname are the engine's", []string{kept + "TestWhatAnEarlierSessionLeft"}},
		{"one mount for all containers, in whatever order they end; overlay and vfs storage", []string{
			kept + "TestTwoContainersInBothOrders", kept + "TestRootful", anchor + "TestTheImageOutlivesItsMount", anchor + "TestRefusals",
		}},
		{"two images in one domain", []string{kept + "TestImagesOfOneDomain", kept + "TestRootful"}},
		{"persist folders", []string{kept + "TestPersist", kept + "TestRootful", anchor + "TestPersist"}},
		{"diff, reset, snapshot, restore, list, prune", []string{commands + "TestPackage", commands + "TestRootful", "internal/cli: TestLeftovers", "internal/stateanchor/snapshot: TestSnapshots"}},
		{"what a rebase installs again", []string{commands + "TestRebase", "internal/cli: TestRebasePlan"}},
		{"copies on file systems that share data and on others", []string{"internal/stateanchor/tree: TestCopy"}},
		{"progress of long work", []string{"internal/cli: TestProgress"}},
		{"files of subordinate ids are deleted for the user", []string{commands + "TestPackage", "internal/stateanchor/tree: TestRemove"}},
		{"a whole tree is the same after a restart", []string{kept + "TestAllOfATreeComesBack"}},
		{"odd characters in paths", []string{kept + "TestOddPaths", anchor + "TestOddNames", anchor + "TestCheckPaths", "internal/cli: TestPodmanWorkspace"}},
		{"everything is killed", []string{kept + "TestKilled", kept + "TestKilledInTheMiddleOfAnInstall", anchor + "TestWhatAKilledProcessLeft", "internal/stateanchor/snapshot: TestKilled"}},
		{"the disk is full", []string{kept + "TestFullDisk", "internal/stateanchor/snapshot: TestFullDisk"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			if len(c.tests) == 0 {
				t.Error("nothing tests it")
			}
			for _, test := range c.tests {
				dir, name, _ := strings.Cut(test, ": ")
				files, err := filepath.Glob(filepath.Join("../../..", dir, "*_test.go"))
				if err != nil {
					t.Fatal(err)
				}
				found := false
				for _, file := range files {
					source, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					found = found || regexp.MustCompile(`(?m)^func `+regexp.QuoteMeta(name)+`\(t \*testing\.T\)`).Match(source)
				}
				if !found {
					t.Errorf("there is no test %s", test)
				}
			}
		})
	}
}
