package git

import "slices"

// Groups are all techniques, in the groups in which they do not disturb each other.
func Groups() []Group {
	return slices.Concat(configGroups(), hookGroups(), moduleGroups(), nestedGroups(), indexGroups(), stateGroups(), linkGroups(), replaceGroups(), fileGroups(), movedGroups())
}

func configGroups() []Group {
	return []Group{
		{Name: "config", Techniques: []Technique{
			{Name: "append", Try: `cfg >>.git/config`, Naive: true},
			{Name: "append-held", Hold: `$A open .git/config -s 1 -- barrier $GO -- fdwrite -s 1 -x "$(full)"`},
			{Name: "reopen-held", Hold: `$A openread .git/config -s 1 -- barrier $GO -- fdreopen -s 1 -x "$(full)"`},
			{Name: "reopen-path", Hold: `$A openpath .git/config -s 1 -- barrier $GO -- fdreopen -s 1 -x "$(full)"`},
			{Name: "pass-held", Hold: `$A open .git/config -s 1 -- barrier $GO -- pass -s 1 -x "$(full)"`},
			{Name: "pass", Try: `$A open .git/config -s 1 -- pass -s 1 -x "$(full)"`},
			{Name: "mmap", Try: `$A mmap .git/config -x "$(full)"`},
			{Name: "truncate", Try: `$A truncate .git/config -x "$P"; $A fallocate .git/config`},
			{Name: "copy-range", Try: `full >mine-copy; $A copyrange mine-copy .git/config`},
			{Name: "dir-held", Hold: `$A opendir .git -s 1 -- barrier $GO -- atwrite config -s 1 -x "$(full)"`},
			{Name: "dir-proc", Try: `$A opendir .git -s 1 -- atproc config -s 1 -x "$(full)"`},
			{Name: "proc-root", Try: `cfg >>/proc/1/root/workspace/.git/config; cfg >>/proc/self/cwd/.git/config`, Naive: true},
			{Name: "link-out", Try: `ln .git/config mine-link && cfg >>mine-link`},
			{Name: "fd-link", Try: `$A open .git/config -s 1 -- fdlink "" mine-fdlink -s 1; cfg >>mine-fdlink`},
			{
				Name: "chmod", Try: `chmod 777 .git/config; chown 1:1 .git/config; $A xattr .git/config -x x; touch -d 2001-01-01 .git/config; true`,
				Check: `[ "$(stat -c %a .git/config)" = 644 ]`,
			},
			{Name: "unmount", Try: `umount /workspace/.git/config; umount -l /workspace/.git/hooks; umount -l /workspace/.git; cfg >>.git/config`},
			{Name: "race", Try: `$A loop 0.3 append .git/config -x "$(cfg)" -- overwrite .git/config -x "$(full)"`},
		}},
		{Name: "config-replace", Techniques: []Technique{
			{Name: "rename-over", Try: `full >mine-1; mv -f mine-1 .git/config`, Naive: true},
			{Name: "exchange", Try: `full >mine-2; $A exchange mine-2 .git/config`},
			{Name: "noreplace", Try: `full >mine-3; mv .git/config .git/gone; $A noreplace mine-3 .git/config`, Naive: true},
			{Name: "link-over", Try: `full >mine-4; ln -f mine-4 .git/config`, Naive: true},
			{Name: "unlink", Try: `rm -f .git/config; full >.git/config`, Naive: true},
			{Name: "tmpfile", Try: `rm -f .git/config; $A tmpfile .git .git/config -x "$(full)"`},
			{
				Name: "symlink", Try: `full >mine-5; rm -f .git/config; ln -sf ../mine-5 .git/config`, Naive: true,
				Check: `[ ! -L .git/config ]`,
			},
			{Name: "fifo", Try: `rm -f .git/config; mkfifo .git/config`, Check: `[ ! -p .git/config ]`},
			{Name: "dir-rename", Hold: `full >mine-6; $A opendir .git -s 1 -- barrier $GO -- atrenamein config mine-6 -s 1`},
			{Name: "race-rename", Try: `full >mine-7; cp mine-7 mine-8; $A loop 0.3 rename mine-7 .git/config -- rename mine-8 .git/config.lock -- rename .git/config.lock .git/config`},
		}},
		{Name: "config-lock", Techniques: []Technique{
			{Name: "lock-held", Hold: `$A open .git/config.lock -s 1 -- fdwrite -s 1 -x "$(full)" -- barrier $GO -- rename .git/config.lock .git/config -- fdwrite -s 1 -x "$(full)"`, Naive: true},
		}},
		{Name: "config-lock-race", Techniques: []Technique{
			// The host's lock, open at the moment that it becomes the config.
			{Name: "lock-race", Hold: `$A loop 8 open .git/config.lock -s 1 -- fdwrite -s 1 -x "$(full)"`, Try: `true`},
			{Name: "lock-race-link", Hold: `$A loop 8 link .git/config.lock mine-lock`, Try: `cfg >>mine-lock`},
			{Name: "lock-race-read", Hold: `$A loop 8 openread .git/config.lock -s 1 -- fdreopen -s 1 -x "$(full)"`, Try: `true`},
		}},
		{Name: "config-beside", Setup: `git -C ws config extensions.worktreeConfig true`, Techniques: []Technique{
			{Name: "config-worktree", Try: `cfg >.git/config.worktree`, Naive: true},
			{Name: "config-worktree-rename", Try: `cfg >mine-cw; mv mine-cw .git/config.worktree`, Naive: true},
			{Name: "config-worktree-lock", Try: `cfg >.git/config.worktree.lock; mv .git/config.worktree.lock .git/config.worktree`, Naive: true},
			{Name: "config-worktree-link", Try: `cfg >mine-cl; ln mine-cl .git/config.worktree`},
			{Name: "config-worktree-case", Try: `cfg >.git/Config.Worktree; cfg >.git/CONFIG`, Check: `[ ! -e .git/CONFIG ]`},
		}},
		{Name: "commondir", Broken: true, Techniques: []Technique{
			{Name: "commondir", Try: `mkgit evil; echo ../evil >.git/commondir`, Naive: true},
			{Name: "commondir-rename", Try: `mkgit evil2; echo ../evil2 >mine-cd; mv mine-cd .git/commondir`, Naive: true},
		}},
		{
			Name: "alternates", Setup: `
				git init -q private && cd private && echo 'the secret' >s && git add s && git commit -qm secret
				git rev-parse HEAD:s >../../out/secret-id`,
			Techniques: []Technique{
				{
					Name: "alternates", Try: `mkdir -p .git/objects/info; echo ../../../private/.git/objects >.git/objects/info/alternates; echo "$V" >>.git/objects/info/alternates`, Naive: true,
					Check: `! git cat-file -e "$(cat "$(dirname "$V")/secret-id")" 2>/dev/null`,
				},
				{
					Name: "alternates-dir", Try: `mkdir -p mine-info; echo "$V" >mine-info/alternates; mv .git/objects/info .git/objects/o; mv mine-info .git/objects/info`, Naive: true,
					Check: `[ ! -e .git/objects/info/alternates ] || ! grep -q "$V" .git/objects/info/alternates`,
				},
				{Name: "http-alternates", Try: `mkdir -p .git/objects/info; echo "$P" >.git/objects/info/http-alternates`, Check: `[ ! -e .git/objects/info/http-alternates ]`, Naive: true},
			},
		},
		{
			Name: "attributes",
			// A filter that the user has for one kind of file, and that must not see others.
			Global: "[filter \"open\"]\n\tsmudge = cat\n\tclean = \"f() { cat; touch '@OUT@/canary-attributes' '@OUT@/canary-attributes-rename' '@OUT@/canary-attributes-dir'; }; f\"\n",
			Techniques: []Technique{
				{Name: "attributes", Try: `mkdir -p .git/info; echo '* filter=open' >.git/info/attributes`, Naive: true},
				{Name: "attributes-rename", Try: `echo '* filter=open' >mine-at; mv mine-at .git/info/attributes`, Naive: true},
				{Name: "attributes-dir", Try: `mkdir -p mine-in; echo '* filter=open' >mine-in/attributes; mv .git/info .git/info2; mv mine-in .git/info`, Naive: true},
				{Name: "grafts", Try: `mkdir -p .git/info; echo x >.git/info/grafts`, Check: `[ ! -e .git/info/grafts ]`},
				{Name: "sparse", Try: `echo '!/*' >.git/info/sparse-checkout`, Check: `[ ! -e .git/info/sparse-checkout ]`},
				{Name: "exclude", Try: `echo '*' >>.git/info/exclude`, Check: `! grep -qx '\*' .git/info/exclude 2>/dev/null`},
				// Remotes of git's old times, that are read where the config has none.
				{Name: "remotes", Try: `mkdir -p .git/remotes .git/branches; printf 'URL: ext::%s\n' "$P" >.git/remotes/fresh; printf 'ext::%s\n' "$P" >.git/branches/fresh`, Naive: true},
			},
		},
		{
			Name: "include", Setup: `
				cd ws && git config include.path ../.gitconfig-team && git config --add include.path ../team/absent
				printf '[alias]\n\tst = status\n' >.gitconfig-team && git add -A && git commit -qm team`,
			Techniques: []Technique{
				{Name: "include-tracked", Try: `cfg >>.gitconfig-team`, Naive: true},
				{Name: "include-rename", Try: `cfg >mine-inc; mv mine-inc .gitconfig-team`, Naive: true},
				{Name: "include-absent", Try: `mkdir -p team; cfg >team/absent`, Naive: true},
				{Name: "include-absent-dir", Try: `mkdir -p mine-team; cfg >mine-team/absent; mv -f team old-team; mv mine-team team`},
				{Name: "include-symlink", Try: `cfg >mine-sym; rm -rf team; mkdir team; ln -s ../mine-sym team/absent`, Check: `! git config --get-all core.fsmonitor | grep -q "$C"`},
			},
		},
		{
			Name: "include-global", Global: "[include]\n\tpath = @WS@/dotfiles/gitconfig\n[core]\n\tattributesFile = @WS@/dotfiles/attributes\n[filter \"open\"]\n\tclean = \"f() { cat; touch '@OUT@/canary-attributes-file'; }; f\"\n",
			Techniques: []Technique{
				{Name: "include-global", Try: `mkdir -p dotfiles; cfg >dotfiles/gitconfig`, Naive: true},
				{Name: "attributes-file", Try: `mkdir -p dotfiles; echo '* filter=open' >dotfiles/attributes`},
			},
		},
	}
}

func hookGroups() []Group {
	write := `hook | put %s/post-checkout; hook | put %s/pre-commit; hook | put %s/reference-transaction; hook | put %s/post-index-change`
	in := func(dir string) string {
		return replaceAll(write, "%s", dir)
	}
	return []Group{
		{Name: "hooks", Techniques: []Technique{
			{Name: "hooks-write", Try: in(".git/hooks")},
			{Name: "hooks-append", Try: `hook >>.git/hooks/pre-commit`},
			{Name: "hooks-rename-dir", Try: `mv .git/hooks .git/h2; mkdir -p .git/hooks; ` + in(".git/hooks")},
			{Name: "hooks-exchange", Try: `mkdir -p mine-hooks; ` + in("mine-hooks") + `; $A exchange mine-hooks .git/hooks; mv -T mine-hooks .git/hooks`},
			{Name: "hooks-symlink", Try: `mkdir -p mine-h2; ` + in("mine-h2") + `; rm -rf .git/hooks; ln -s ../mine-h2 .git/hooks`},
			{Name: "hooks-symlink-file", Try: `hook | put mine-hook; ln -sf ../../mine-hook .git/hooks/post-checkout`},
			{Name: "hooks-link", Try: `hook | put mine-hl; ln mine-hl .git/hooks/post-commit; ln .git/hooks/pre-commit mine-hp; hook >mine-hp`},
			{Name: "hooks-held", Hold: `$A opendir .git/hooks -s 1 -- barrier $GO -- atwrite post-checkout -s 1 -x "$(hook)"`},
			{Name: "hooks-unmount", Try: `umount -l /workspace/.git/hooks; ` + in(".git/hooks")},
		}},
		{Name: "hooks-absent", Setup: `rm -rf ws/.git/hooks`, Techniques: []Technique{
			{Name: "hooks-new", Try: `mkdir -p .git/hooks; ` + in(".git/hooks")},
			{Name: "hooks-moved-in", Try: `mkdir -p mine-hk; ` + in("mine-hk") + `; mv -T mine-hk .git/hooks`},
		}},
		{
			Name: "hooks-path", Setup: `
				cd ws && mkdir -p .husky/_ && printf '#!/bin/sh\nexit 0\n' >.husky/_/pre-commit && chmod 755 .husky/_/pre-commit
				git add -A && git commit -qm husky && git config core.hooksPath .husky/_`,
			Techniques: []Technique{
				{Name: "hooks-path-write", Try: in(".husky/_"), Naive: true},
				{Name: "hooks-path-append", Try: `hook >>.husky/_/pre-commit`, Naive: true},
				{Name: "hooks-path-link", Try: `ln .husky/_/pre-commit mine-hp; hook >mine-hp`},
				{Name: "hooks-path-rename", Try: `mkdir -p mine-hp2/_; ` + in("mine-hp2/_") + `; mv .husky .husky2; mv -T mine-hp2 .husky`},
				{Name: "hooks-path-rename-inner", Try: `mkdir -p mine-hp3; ` + in("mine-hp3") + `; mv .husky/_ .husky/old; mv -T mine-hp3 .husky/_`},
			},
		},
		{Name: "hooks-path-absent", Setup: `git -C ws config core.hooksPath .githooks`, Techniques: []Technique{
			{Name: "hooks-path-absent", Try: `mkdir -p .githooks; ` + in(".githooks"), Naive: true},
			{Name: "hooks-path-absent-rename", Try: `mkdir -p mine-gh; ` + in("mine-gh") + `; mv -T mine-gh .githooks`},
			{Name: "hooks-path-absent-symlink", Try: `mkdir -p mine-gs; ` + in("mine-gs") + `; ln -s mine-gs .githooks`},
		}},
		{Name: "hooks-path-symlink", Setup: `cd ws && mkdir real-hooks && touch real-hooks/.keep && ln -s real-hooks .githooks && git add -A && git commit -qm hooks && git config core.hooksPath .githooks`, Techniques: []Technique{
			{Name: "hooks-path-link-target", Try: in("real-hooks"), Naive: true},
			{Name: "hooks-path-link-changed", Try: `mkdir -p mine-lt; ` + in("mine-lt") + `; rm -f .githooks; ln -sfn mine-lt .githooks`},
		}},
		{Name: "hooks-path-global", Global: "[core]\n\thooksPath = .hooks\n", Techniques: []Technique{
			{Name: "hooks-path-global", Try: `mkdir -p .hooks; ` + in(".hooks"), Naive: true},
		}},
		{Name: "hooks-path-global-absolute", Global: "[core]\n\thooksPath = @WS@/tools/hooks\n", Setup: `mkdir -p ws/tools/hooks && touch ws/tools/hooks/.keep`, Techniques: []Technique{
			{Name: "hooks-path-global-absolute", Try: in("tools/hooks"), Naive: true},
			{Name: "hooks-path-parent", Try: `mkdir -p mine-tools/hooks; ` + in("mine-tools/hooks") + `; mv tools tools2; mv -T mine-tools tools`},
		}},
		{Name: "hooks-path-later", Techniques: []Technique{
			// The host sets it while the sandbox lives. What is there by then is told; it
			// cannot be changed any more.
			{Name: "hooks-path-later", Host: `git config core.hooksPath later; sleep 0.5`, After: `mkdir -p later; ` + in("later"), Naive: true},
			{Name: "include-later", Host: `git config include.path ../later.inc; sleep 0.5`, After: `cfg >later.inc`, Naive: true},
			{Name: "include-global-later", Host: `git config --global include.path "$PWD/glob.inc"; sleep 0.5`, After: `cfg >glob.inc`, Naive: true},
			{
				Name: "include-later-held", Setup: `printf '[alias]\n\tst = status\n' >held.inc; git add held.inc; git commit -qm held`,
				Hold: `ln held.inc mine-twin; $A open held.inc -s 1 -- barrier $GO -- barrier /tmp/later -- fdwrite -s 1 -x "$(cfg)"`,
				Host: `git config --add include.path ../held.inc; sleep 0.5`, After: `touch /tmp/later; cfg >>mine-twin; ln -sfn mine-inc held.inc; cfg >held.inc`,
			},
			{
				Name: "hooks-path-later-linked", Try: `mkdir -p mine-l1 mine-l2; [ -e way ] || ln -s mine-l1 way`, Host: `git init -q inner; git -C inner config core.hooksPath ../way; sleep 0.5`,
				After: in("way") + `; ` + in("mine-l1") + `; ` + in("mine-l2") + `; rm -f way; ln -sfn mine-l2 way`,
				Check: `git -C inner commit -q --allow-empty -m x >/dev/null 2>&1; [ ! -e "$C" ]`, Naive: true,
			},
			{
				Name: "hooks-path-nested", Setup: `git init -q sub2; git -C sub2 config core.hooksPath .hk`, Try: `mkdir -p sub2/.hk; ` + in("sub2/.hk"),
				Check: `git -C sub2 commit -q --allow-empty -m x >/dev/null 2>&1; [ ! -e "$C" ]`, Naive: true,
			},
		}},
	}
}

func moduleGroups() []Group {
	const submodules = `
		git init -q b && git -C b commit -q --allow-empty -m b
		git init -q a && git -C a commit -q --allow-empty -m a && git -C a submodule --quiet add "$PWD/b" b && git -C a commit -qm sub
		git -C ws submodule --quiet add "$PWD/a" vendor/a && git -C ws submodule --quiet update --init --recursive && git -C ws commit -qam sub
		git -C ws push -q origin main`
	return []Group{
		{Name: "modules", Setup: submodules, Techniques: []Technique{
			{Name: "module-config", Try: `cfg >>.git/modules/vendor/a/config`, Naive: true},
			{Name: "module-config-nested", Try: `cfg >>.git/modules/vendor/a/modules/b/config`, Naive: true},
			{Name: "module-hooks", Try: `mkdir -p .git/modules/vendor/a/hooks; hook | put .git/modules/vendor/a/hooks/post-index-change`, Naive: true},
			{Name: "module-hooks-nested", Try: `mkdir -p .git/modules/vendor/a/modules/b/hooks; hook | put .git/modules/vendor/a/modules/b/hooks/post-index-change`, Naive: true},
			{Name: "module-lock", Hold: `$A open .git/modules/vendor/a/config.lock -s 1 -- barrier $GO -- rename .git/modules/vendor/a/config.lock .git/modules/vendor/a/config -- fdwrite -s 1 -x "$(full)"`},
			{Name: "module-config-worktree", Try: `cfg >.git/modules/vendor/a/config.worktree`, Check: `[ ! -e .git/modules/vendor/a/config.worktree ]`, Naive: true},
			{Name: "module-attributes", Try: `mkdir -p .git/modules/vendor/a/info; echo x >>.git/modules/vendor/a/info/attributes`, Check: `[ ! -e .git/modules/vendor/a/info/attributes ]`, Naive: true},
			{Name: "module-alternates", Try: `echo "$V" >.git/modules/vendor/a/objects/info/alternates`, Check: `[ ! -e .git/modules/vendor/a/objects/info/alternates ]`},
		}},
		{Name: "modules-replace", Setup: submodules, Broken: true, Techniques: []Technique{
			{Name: "module-rename", Try: `mkgit mine-mod; mv .git/modules/vendor/a .git/modules/vendor/old; mv -T mine-mod .git/modules/vendor/a`, Naive: true},
			{Name: "module-nested-rename", Try: `mkgit mine-mod2; mv .git/modules/vendor/a/modules .git/modules/vendor/a/old; mkdir -p .git/modules/vendor/a/modules; mv -T mine-mod2 .git/modules/vendor/a/modules/b`},
			{Name: "module-commondir", Try: `mkgit evil; echo "../../../../evil" >.git/modules/vendor/a/commondir`},
		}},
		{Name: "module-pointer", Setup: submodules, Broken: true, Techniques: []Technique{
			{Name: "pointer", Try: `mkgit evil; echo 'gitdir: ../../evil' >vendor/a/.git`, Naive: true},
			{Name: "pointer-rename", Try: `mkgit evil2; echo 'gitdir: ../../evil2' >mine-ptr; mv -f mine-ptr vendor/a/.git`, Naive: true},
			{Name: "pointer-held", Hold: `mkgit evil3; $A open vendor/a/.git -s 1 -- barrier $GO -- fdwrite -s 1 -x 'gitdir: ../../evil3
'`, Naive: true},
		}},
		{Name: "module-pointer-dir", Setup: submodules, Broken: true, Techniques: []Technique{
			{Name: "pointer-to-dir", Try: `rm -f vendor/a/.git; mkgit vendor/a/.git`, Naive: true},
			{Name: "pointer-parent", Try: `mkdir -p mine-v/a; mkgit mine-v/a/.git; mv vendor vendor-old; mv -T mine-v vendor`, Naive: true},
		}},
		{Name: "gitmodules", Setup: submodules, Broken: true, Techniques: []Technique{
			{Name: "gitmodules-update", Try: `printf '[submodule "vendor/a"]\n\tpath = vendor/a\n\turl = ../a\n\tupdate = !%s\n' "$P" >.gitmodules`},
			{Name: "gitmodules-url", Try: `printf '[submodule "x"]\n\tpath = x\n\turl = ext::%s\n' "$P" >>.gitmodules`},
			{Name: "gitmodules-option", Try: `printf '[submodule "y"]\n\tpath = y\n\turl = --upload-pack=%s\n' "$C" >>.gitmodules`},
			{Name: "gitmodules-name", Try: `mkgit mine-name; printf '[submodule "../../mine-name"]\n\tpath = z\n\turl = ../a\n' >>.gitmodules; mkdir -p z; echo 'gitdir: ../mine-name' >z/.git`},
			{Name: "new-module", Try: `mkgit .git/modules/evil; mkdir -p e; echo 'gitdir: ../.git/modules/evil' >e/.git`, Naive: true},
			{Name: "new-module-moved", Try: `mkgit mine-nm; mv mine-nm .git/modules/evil2; mkdir -p e2; echo 'gitdir: ../.git/modules/evil2' >e2/.git`, Naive: true},
		}},
		{Name: "module-later", Setup: `git init -q a && git -C a commit -q --allow-empty -m a`, Techniques: []Technique{
			{
				Name: "module-later", Host: `git submodule --quiet add "$PWD/../a" late && git commit -qm late`,
				After: `cfg >>.git/modules/late/config; mkdir -p .git/modules/late/hooks; hook | put .git/modules/late/hooks/post-index-change; cfg >.git/modules/late/config.worktree`, Naive: true,
			},
			{Name: "module-later-pointer", After: `mkgit evil; echo 'gitdir: ../evil' >late/.git`},
			{
				Name: "module-before", Try: `[ -e .git/modules/late2 ] || { mkgit .git/modules/late2; echo "$P" >.git/modules/late2/description; }`,
				Host: `git submodule --quiet add "$PWD/../a" late2 || true`,
			},
		}},
		{Name: "worktree-later", Techniques: []Technique{
			{
				Name: "worktree-later", Host: `git worktree add -q ../wt2 -b wt2; git config extensions.worktreeConfig true`,
				After: `cfg >.git/worktrees/wt2/config.worktree`, Check: `git -C ../wt2 status >/dev/null 2>&1; [ ! -e "$C" ]`, Naive: true,
			},
			{
				Name: "worktree-commondir", After: `mkgit evil; echo /workspace/evil >.git/worktrees/wt2/commondir; echo ../../../evil >.git/worktrees/wt2/commondir`,
				Check: `git -C ../wt2 status >/dev/null 2>&1; [ "$(cat .git/worktrees/wt2/commondir)" = ../.. ]`, Naive: true,
			},
			{Name: "worktree-gitdir", After: `echo "$V" >.git/worktrees/wt2/gitdir`, Check: `! grep -q victim .git/worktrees/wt2/gitdir`},
			{
				Name: "worktree-rename", After: `mkdir -p mine-wt; cp .git/worktrees/wt2/* mine-wt/; echo evil >mine-wt/commondir; mv .git/worktrees/wt2 .git/worktrees/old; mv mine-wt .git/worktrees/wt2`,
				Check: `[ ! -e .git/worktrees/old ]`, Naive: true,
			},
			{Name: "worktree-new", Try: `mkgit evil-c; mkdir -p .git/worktrees/evil; echo ../../../evil-c >.git/worktrees/evil/commondir; echo 'ref: refs/heads/main' >.git/worktrees/evil/HEAD; mkdir -p e; echo 'gitdir: ../.git/worktrees/evil' >e/.git`, Naive: true},
		}, Broken: true},
		{Name: "linked-worktree", Workspace: "wt", Setup: `git -C ws worktree add -q ../wt -b wt`, Techniques: []Technique{
			{Name: "wt-pointer", Try: `mkgit evil; echo 'gitdir: evil' >.git`, Naive: true},
			{Name: "wt-pointer-rename", Try: `mkgit evil2; echo 'gitdir: evil2' >mine-p; mv -f mine-p .git`, Naive: true},
			{Name: "wt-pointer-dir", Try: `rm -f .git; mkgit .git`, Naive: true},
			{Name: "wt-pointer-symlink", Try: `mkgit evil3; rm -f .git; ln -s evil3 .git`},
			{Name: "wt-common", Try: `g=$(sed 's/gitdir: //' .git); cd "$g" || exit; cfg >>config.worktree; cfg >>../../config; mkdir -p ../../hooks; hook | put ../../hooks/post-checkout; mkgit evil; echo ../../../ws/evil >commondir`},
			{Name: "wt-other", Try: `g=$(sed 's/gitdir: //' .git); cd "$g/../.." || exit; echo "$P" >HEAD; rm -f index`, Check: `! grep -q touch ../ws/.git/HEAD`},
		}, Broken: true},
		{Name: "submodule-workspace", Workspace: "ws/vendor/a", Setup: submodules, Techniques: []Technique{
			{Name: "sub-pointer", Try: `mkgit evil; echo 'gitdir: evil' >.git`, Naive: true},
			{Name: "sub-pointer-dir", Try: `mkgit mine-g; rm -f .git; mv -T mine-g .git`, Naive: true},
			{Name: "sub-gitdir", Try: `g=$(sed 's/gitdir: //' .git); cd "$g" || exit; cfg >>config; mkdir -p hooks; hook | put hooks/post-checkout; cfg >>modules/b/config; cfg >>../../../config`},
		}, Broken: true},
	}
}
