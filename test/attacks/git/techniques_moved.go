package git

// movedGroups carry what the host has to where its words mean something else, or
// reach what it obeys from a place that is none of the workspace's repository.
func movedGroups() []Group {
	in := func(dir string) string {
		return replaceAll(`mkdir -p %s; hook | put %s/post-commit; hook | put %s/pre-commit; hook | put %s/reference-transaction`, "%s", dir)
	}
	// Each repository that is still there commits once.
	commit := func(dirs string) string {
		return `for d in ` + dirs + `; do [ ! -e $d ] || { git -C $d status; git -C $d commit -q --allow-empty -m x; } >/dev/null 2>&1; done; [ ! -e "$C" ]`
	}
	return []Group{
		{Name: "nested-carried", Broken: true, Setup: `
			cd ws && mkdir p && for r in n m o s; do git init -q p/$r && git -C p/$r commit -q --allow-empty -m x; done
			git -C p/n config core.hooksPath ../hk && git -C p/m config include.path ../../../team.inc && git -C p/s config core.fsmonitor ../fs.sh
			ln -s ../../../hk2/pre-commit p/o/.git/hooks/pre-commit`, Techniques: []Technique{
			{Name: "carried-hooks", Try: in("q/hk") + `; mv p/n q/n`, Check: commit("p/n q/n"), Naive: true},
			{Name: "carried-include", Try: `mkdir -p q2/a; cfg >q2/team.inc; mv p/m q2/a/m`, Check: commit("p/m q2/a/m"), Naive: true},
			{Name: "carried-parent", Try: in("p3/hk") + `; mkdir -p p3; mv p p3/p; mv p3/p/n p3/n; mv p3/n p3/p/n; mv p3/p p`, Check: commit("p/n p3/n p3/p/n")},
			{Name: "carried-link", Try: in("q4/hk2") + `; mkdir -p q4/b; mv p/o q4/b/o`, Check: commit("p/o q4/b/o")},
			{Name: "carried-program", Try: `mkdir -p q5; printf '#!/bin/sh\n%s\n' "$P" | put q5/fs.sh; mv p/s q5/s`, Check: commit("p/s q5/s"), Naive: true},
			{Name: "carried-exchange", Try: in("q6/hk") + `; mkdir -p q6/n; $A exchange p/n q6/n`, Check: commit("p/n q6/n")},
		}},
		{Name: "nested-global", Global: "[core]\n\thooksPath = .hooks\n", Broken: true, Setup: `
			cd ws && mkdir r && git init -q r/n && git -C r/n commit -q --allow-empty -m x`, Techniques: []Technique{
			{Name: "global-nested", Try: in("r/n/.hooks"), Check: commit("r/n")},
			{Name: "global-nested-moved", Try: `mv r/n r/n2; ` + in("r/n2/.hooks") + `; mv r r2; ` + in("r2/n/.hooks"), Check: commit("r/n r/n2 r2/n r2/n2")},
			{Name: "global-nested-carried", Try: `mkdir -p d; ` + in("d/.hooks") + `; $A exchange r/n/.git d/.git; mv r/n/.git d/.git; mv -T r/n/.git d/.git`, Check: commit("d r/n")},
		}},
		{Name: "subdirectory-obeyed", Workspace: "ws/src", Broken: true, Setup: `
			git -C ws config core.hooksPath src/.githooks; git -C ws config include.path ../src/team.inc; git -C ws config core.attributesFile src/attrs`, Techniques: []Technique{
			{Name: "above-hooks", Try: in(".githooks"), Check: commit("..")},
			{Name: "above-include", Try: `cfg >team.inc`, Check: commit(".."), Naive: true},
		}},
		{Name: "conditional", Setup: `
			cd ws && git config includeIf.onbranch:evil.path ../branch.inc && git config includeIf.gitdir:/none/.path ../none.inc && git branch evil`, Techniques: []Technique{
			{Name: "include-onbranch", Try: `cfg >branch.inc; [ ! -e $GO ] || echo 'ref: refs/heads/evil' >.git/HEAD`, Check: `git status >/dev/null 2>&1; [ ! -e "$C" ]`, Naive: true},
			{Name: "include-no-match", Try: `cfg >none.inc`, Check: `[ ! -e none.inc ]`, Naive: true},
		}},
		{Name: "template", Global: "[init]\n\ttemplateDir = @WS@/template\n", Techniques: []Technique{
			{Name: "template-hooks", Try: in("template/hooks"), Check: `git init -q ../fresh && git -C ../fresh commit -q --allow-empty -m x >/dev/null 2>&1; [ ! -e "$C" ]`, Naive: true},
			{Name: "template-config", Try: `mkdir -p template; full >template/config`, Check: `git init -q ../fresh2 && git -C ../fresh2 status >/dev/null 2>&1; [ ! -e "$C" ]`, Naive: true},
		}},
		{Name: "worktree-inside", Broken: true, Setup: `
			cd ws && git init -q --bare -b main b.git && git -C b.git fetch -q "$PWD" main:main && mkdir t && git -C b.git worktree add -q ../t/wt main
			printf 'gitdir: ../../b.git/worktrees/wt\n' >t/wt/.git && git -C t/wt status --porcelain`, Techniques: []Technique{
			{Name: "inside-carried", Try: `mkdir -p u/b.git/worktrees/wt u/v; mkgit u/b.git; mkgit u/evil; cd u/b.git/worktrees/wt; echo ../../../evil >commondir; cp /workspace/b.git/worktrees/wt/HEAD /workspace/b.git/worktrees/wt/index .; cd /workspace; mv t/wt u/v/wt`, Check: commit("t/wt u/v/wt")},
			{Name: "inside-pointer", Try: `echo 'gitdir: ../evil' >t/wt/.git; cfg >>b.git/config; cfg >b.git/worktrees/wt/config.worktree; echo ../../../u/evil >b.git/worktrees/wt/commondir`, Check: commit("t/wt")},
		}},
		{Name: "helper-data", Broken: true, Techniques: []Technique{
			// Read by the host's git; none of it names a program.
			{
				Name: "corrupt-data", Try: `
					mkdir -p .git/objects/info/commit-graphs .git/objects/pack
					for f in info/commit-graph info/commit-graphs/commit-graph-chain pack/multi-pack-index pack/pack-0123456789012345678901234567890123456789.bitmap pack/pack-0123456789012345678901234567890123456789.idx pack/pack-0123456789012345678901234567890123456789.rev pack/pack-0123456789012345678901234567890123456789.mtimes; do
						printf 'CGPH\1\1\4\0%s\n' "$P" >.git/objects/$f; done`,
				Check: `[ ! -e "$C" ]`,
			},
			{
				Name: "unknown-stores", Try: `mkdir -p .git/reftable .git/fsmonitor--daemon/cookies .git/objects/loose-object-idx; printf '%s\n' "$P" >.git/reftable/tables.list; echo "$P" >.git/fsmonitor--daemon/cookies/x; echo "$P" >.git/maintenance; echo "$P" >.git/schedule.lock`,
				Check: `[ ! -e .git/reftable ] && [ ! -e .git/fsmonitor--daemon ] && [ ! -e .git/maintenance ]`, Naive: true,
			},
		}},
	}
}
