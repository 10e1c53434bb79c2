// Package cases holds published faults and attacks against the tests that try them
// here. Those against git have a table of their own, with the techniques of
// test/attacks/git.
package cases

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPublishedCases fails where a case has no test: "directory: name of a test".
func TestPublishedCases(t *testing.T) {
	t.Parallel()
	const (
		attacks, escalate, broker = "test/attacks/escalate: ", "test/e2e/escalate: ", "internal/coordinator/broker: "
		policy, hostrun           = "escalate/policy: ", "escalate/hostrun: "
		network, main, oci        = "test/e2e/network: ", "test/e2e/mainpath: ", "test/e2e/oci: "
		terminals, run, settings  = "test/e2e/terminals: ", "test/e2e/run: ", "test/e2e/settings: "
		config, shim, coordinator = "internal/config: ", "shim: ", "internal/coordinator: "
		anchor, state, commands   = "internal/stateanchor: ", "test/e2e/state: ", "test/e2e/statecmd: "
	)
	for _, c := range []struct {
		what  string
		tests []string
	}{
		// Approvals.
		{"a prefix that ends within a word, another program of that name, an empty prefix", []string{policy + "TestPrefix", policy + "TestPrefixesThatApproveNothing", config + "TestAutoApproveRefusesBadPrefixes"}},
		{"an approved program whose behaviour, or which itself, is the agent's", []string{policy + "TestWarnings", policy + "TestProgram", policy + "TestSharedProgram", policy + "TestWrittenTo", config + "TestAutoApproveRefusesProgramsThatRunOthers", escalate + "TestAsk"}},
		{"directory and environment out of the request", []string{policy + "TestDirectory", policy + "TestFromEnvironment", hostrun + "TestEnvironment", attacks + "TestAttacks"}},
		{"the prompt shows something else than what runs", []string{"internal/console/prompt: TestRender", "internal/console/prompt: TestLongCommandsAreReadFirst", run + "TestLegible", hostrun + "TestNothingRunsThatWasNotShown", "internal/console/terminal: TestThePromptShows"}},
		{"ambiguous JSON", []string{"escalate: TestParse", attacks + "TestAttacks"}},
		{"who is asking, and what is within reach", []string{attacks + "TestAttacks", "internal/trust: TestHandshake", "internal/sessionkey: TestTakeRefuses", broker + "TestRefused", coordinator + "TestSources"}},
		{"keys for the agent answer a prompt", []string{"internal/console: TestEarlyKeys", "internal/console/terminal: TestAnswersOfTheTerminalAreNoKeys", "internal/console/terminal: TestPromptInBetween"}},
		{"a flood, and connections left open", []string{attacks + "TestAttacks", broker + "TestBounds", broker + "TestRefusalsAreCounted"}},
		{"an approval that cannot be written down", []string{broker + "TestNotRecorded", "internal/store: TestFullDisk"}},

		// The network.
		{"the query is the leak", []string{network + "TestListedIsReachedAndNothingElse", "netrouter/dns: TestLimits"}},
		{"IPv6 left open", []string{network + "TestListedIsReachedAndNothingElse", "netrouter/apply: TestRuleset"}},
		{"the first second, and a guard that is not there", []string{network + "TestStarts", shim + "TestNetworkThatCannotBeEnforced", coordinator + "TestRefusedFirstPrepareEndsTheCoordinator"}},
		{"a listed name that leads inwards", []string{network + "TestListedIsReachedAndNothingElse", "netrouter/plan: TestAddresses"}},
		{"names that look alike, and what empty means", []string{"netrouter/plan: TestNames", "netrouter/plan: TestCompileRefuses", "netrouter/plan: TestEmptyListsAllowNothing", config + "TestMisspeltSafety", network + "TestListedIsReachedAndNothingElse"}},
		{"honest work: long flows, aliases, addresses that change, a live change", []string{network + "TestMany", network + "TestLive", network + "TestClients", "netrouter/dns: TestChase"}},
		{"a server name that is hidden or another, requests within requests", []string{network + "TestMany", network + "TestListedIsReachedAndNothingElse", "netrouter/proxy: TestReadHello", "netrouter/proxy: TestHostName"}},

		// The runtime.
		{"exec with a terminal", []string{terminals + "TestTerminal", oci + "TestConsoleSockets"}},
		{"the runtime's name, its log, 126 and 127", []string{main + "TestExitCodes", main + "TestRuntimeByPath", oci + "TestSameAsBareRunsc"}},
		{"a near-empty environment", []string{oci + "TestNearEmptyEnvironment", shim + "TestNearEmptyEnvironment", main + "TestDeleteWithoutEnvironment"}},
		{"finding the subcommand", []string{oci + "TestSameAsBareRunsc", "internal/ociargv: TestParse", shim + "TestWordsThatRunscWouldDrop"}},
		{"signals and states", []string{oci + "TestSignalsAndStates", oci + "TestSignalsToTheRuntimeItself", main + "TestStop", main + "TestKill", main + "TestKilledHelpers"}},
		{"the rest of the surface", []string{main + "TestSurface", shim + "TestFeatures"}},
		{"cgroups, rootless", []string{main + "TestLimits"}},
		{"identity and labels", []string{main + "TestIdentity", main + "TestForeignGroup", main + "TestMountOptions"}},
		{"what is shared with the host", []string{main + "TestWorkspaceIsShared"}},
		{"half-made containers", []string{oci + "TestHalfMadeContainers", main + "TestFailedCreate", main + "TestScantyImage", main + "TestTwoStartsAtOnce", shim + "TestCreateThatFails"}},

		// Overlays and what stays.
		{"the runtime's own overlay keeps writes from ours; restart, commit and diff", []string{
			state + "TestChangesAreThereInTheNextContainer", "test/e2e/mainpath: TestRootfsIsTheEngines",
		}},
		{"a session replaces the client and other helpers for the next ones", []string{state + "TestWhatAnEarlierSessionLeft", state + "TestForgedMarks", state + "TestALinkAboveAKeptDirectory"}},
		{"one workspace under many spellings, and two under one key", []string{
			"internal/domain: TestHash", "internal/domain: TestCanonicalLeadsToOneAnchor", "test/e2e/mainpath: TestDomains", "internal/config: TestMisspeltSafety",
		}},
		{"another workspace comes to the path of one that was moved away", []string{anchor + "TestAnotherWorkspaceAtThePathIsTold"}},
		{"a reset exists and works", []string{commands + "TestPackage"}},
		{"the image is rebuilt under kept changes: the same release", []string{state + "TestPackagesSurvive", state + "TestImagesOfOneDomain", anchor + "TestImagesThatChange"}},
		{"the image is rebuilt under kept changes: another release, an old C library", []string{state + "TestImagesOfOneDomain", commands + "TestRebase", anchor + "TestImagesThatChange"}},
		{"package databases and configuration outside of /usr", []string{state + "TestPackagesSurvive", commands + "TestPackage"}},

		// What the State Anchor promises.
		{"overlays of both drivers, rootless and rootful", []string{state + "TestChangesAreThereInTheNextContainer", state + "TestRootful", anchor + "TestChangesSurvive"}},
		{"the driver is chosen once; a forced or missing one", []string{state + "TestRefusals", anchor + "TestRefusals"}},
		{"resolv.conf, hosts and hostname are the engine's", []string{state + "TestWhatAnEarlierSessionLeft"}},
		{"one mount for all containers, in whatever order they end; overlay and vfs storage", []string{
			state + "TestTwoContainersInBothOrders", state + "TestRootful", anchor + "TestTheImageOutlivesItsMount", anchor + "TestRefusals",
		}},
		{"two images in one domain", []string{state + "TestImagesOfOneDomain", state + "TestRootful"}},
		{"persist folders", []string{state + "TestPersist", state + "TestRootful", anchor + "TestPersist"}},
		{"diff, reset, snapshot, restore, list, prune", []string{commands + "TestPackage", commands + "TestRootful", "internal/cli: TestLeftovers", "internal/stateanchor/snapshot: TestSnapshots"}},
		{"what a rebase installs again", []string{commands + "TestRebase", "internal/cli: TestRebasePlan"}},
		{"copies on file systems that share data and on others", []string{"internal/stateanchor/tree: TestCopy"}},
		{"progress of long work", []string{"internal/cli: TestProgress"}},
		{"files of subordinate ids are deleted for the user", []string{commands + "TestPackage", "internal/stateanchor/tree: TestRemove"}},
		{"a whole tree is the same after a restart", []string{state + "TestAllOfATreeComesBack"}},
		{"odd characters in paths", []string{state + "TestOddPaths", anchor + "TestOddNames", anchor + "TestCheckPaths", "internal/cli: TestPodmanWorkspace"}},
		{"everything is killed", []string{state + "TestKilled", state + "TestKilledInTheMiddleOfAnInstall", anchor + "TestWhatAKilledProcessLeft", "internal/stateanchor/snapshot: TestKilled"}},
		{"the disk is full", []string{state + "TestFullDisk", "internal/stateanchor/snapshot: TestFullDisk"}},

		// Configuration, life and first steps.
		{"the middle file belongs to the agent", []string{config + "TestAttackOfTheCaseLog", config + "TestUntrustedWorkspaceFileLoosensNothing", config + "TestTrustIsOfOnePathAndOneContent", config + "TestWorkspaceFileMustBeARegularFile", config + "TestConfigFileInTheWorkspaceNeedsTrust", settings + "TestWorkspaceFile"}},
		{"misspelt safety", []string{config + "TestMisspeltSafety", config + "TestBadValues", config + "TestUnreadableIsNotAbsent", config + "TestAllFaultsOfAllFilesAreToldAtOnce"}},
		{"the coordinator's life", []string{coordinator + "TestFiftyStartsOneCoordinator", coordinator + "TestStoppedCoordinatorIsNamed", coordinator + "TestTakenNamesAreRefused", coordinator + "TestRemovedSocketComesBack", main + "TestSquattedNames", "internal/store: TestNewerSchemaIsRefused", "internal/store: TestDamagedFileIsTold", "test/e2e/chaos: TestKilledAtRandomMoments", "test/e2e/chaos: TestSimultaneousStartsInOneDomain"}},
		{"kinds of terminals", []string{terminals + "TestOddTerms", terminals + "TestTerminfo", "internal/console: TestSmallScreens", "internal/console: TestColours", "internal/console/terminal: TestThePromptLeavesNoTrace"}},
		{"running it at all", []string{"internal/doctor: TestOneThingBroken", "internal/doctor: TestHealthyMachine", main + "TestLoadedImages", main + "TestBuild", main + "TestPods", main + "TestEphemeralDomain", main + "TestWorkspaces"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			if len(c.tests) == 0 {
				t.Error("nothing tests it")
			}
			for _, test := range c.tests {
				dir, name, _ := strings.Cut(test, ": ")
				files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
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
